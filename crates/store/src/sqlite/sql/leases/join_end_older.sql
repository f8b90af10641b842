-- Ends every lease except that of incarnation ?1, under fence ?3. Scans leases, a small table.
-- Only one process has the file open, so the name of the node (?2) does not matter.
update leases set ended = 1, fence = ?3 where incarnation <> ?1 and ended = 0;
