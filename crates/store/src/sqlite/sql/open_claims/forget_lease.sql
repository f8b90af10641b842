-- Removes the lease of incarnation ?1, which has no claims left. Primary key: leases.
delete from leases where incarnation = ?1;
