-- Ends the leases, but that of incarnation ?1, that have expired at ?2, under the raised fence ?3. Scans leases, which are few.
update leases set ended = 1, fence = ?3 where incarnation <> ?1 and ended = 0 and until <= ?2;
