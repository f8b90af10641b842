-- Holds the leases, but that of incarnation $1, that have expired at $2, in order. This waits for what they have under way.
-- Scans leases, which are few.
select incarnation from leases where incarnation <> $1 and not ended and until <= $2 order by incarnation for update;
