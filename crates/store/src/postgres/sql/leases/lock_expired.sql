-- Locks the leases that have expired at $2, except that of incarnation $1, in ascending order. Scans leases, a small table.
-- The lock waits for the statements that these nodes have in flight.
select incarnation from leases where incarnation <> $1 and not ended and until <= $2 order by incarnation for update;
