-- Holds the leases of incarnation $1 and of node $2, in order. Scans leases, which are few.
select incarnation from leases where incarnation = $1 or (node = $2 and not ended) order by incarnation for update;
