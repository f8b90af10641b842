-- Locks the lease of incarnation $1 and those of node $2 that have not ended, in ascending order. Scans leases, a small table.
select incarnation from leases where incarnation = $1 or (node = $2 and not ended) order by incarnation for update;
