-- Ends the leases that have expired at ?2, except that of incarnation ?1, under the new fence ?3. Scans leases, a small table.
update leases set ended = 1, fence = ?3 where incarnation <> ?1 and ended = 0 and until <= ?2;
