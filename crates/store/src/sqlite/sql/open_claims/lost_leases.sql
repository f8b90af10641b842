-- Lists the ended leases, except that of incarnation ?1. Scans leases, a small table.
select incarnation, open_from from leases where incarnation <> ?1 and ended = 1 order by open_from;
