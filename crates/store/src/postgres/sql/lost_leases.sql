-- The leases that have ended, but for incarnation $1. Scans leases, which are few.
select incarnation, open_from from leases where incarnation <> $1 and ended order by open_from;
