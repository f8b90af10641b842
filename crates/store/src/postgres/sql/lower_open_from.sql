-- Notes that the lease, held alone, claims a run with an id as low as $2. Key: leases.
update leases set open_from = $2 where incarnation = $1 and open_from > $2;
