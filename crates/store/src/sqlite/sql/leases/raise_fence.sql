-- Sets the fence of the lease of incarnation ?1 to ?2. Primary key: leases. The caller has checked the lease.
update leases set fence = ?2 where incarnation = ?1;
