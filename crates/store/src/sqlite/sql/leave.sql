-- Ends a lease under the raised fence ?2. Key: leases.
update leases set ended = 1, fence = ?2 where incarnation = ?1;
