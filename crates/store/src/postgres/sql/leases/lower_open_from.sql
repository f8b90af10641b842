-- Lowers open_from of the lease of incarnation $1 to the claimed run $2, if it is higher. Primary key: leases.
-- The caller has locked the lease.
update leases set open_from = $2 where incarnation = $1 and open_from > $2;
