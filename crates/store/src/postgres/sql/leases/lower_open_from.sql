-- Lowers open_from of the lease of incarnation $1 to the claimed run $2. Primary key: leases.
-- The caller has locked the lease, and has read that its open_from is higher.
update leases set open_from = $2 where incarnation = $1;
