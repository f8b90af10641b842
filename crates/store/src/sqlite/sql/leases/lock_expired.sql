-- Lists the leases that have expired at ?2, except that of incarnation ?1. Scans leases, a small table.
select incarnation from leases where incarnation <> ?1 and ended = 0 and until <= ?2;
