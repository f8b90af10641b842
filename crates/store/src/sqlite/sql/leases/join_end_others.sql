-- Ends every lease except that of incarnation ?1, under fence ?2. Scans leases, a small table.
update leases set ended = 1, fence = ?2 where incarnation <> ?1 and ended = 0;
