-- Notes that the claims of incarnation $1 below id $2 have been added to open_claims. Primary key: leases.
-- The caller has locked the lease.
update leases set compared_to = greatest(compared_to, $2) where incarnation = $1;
