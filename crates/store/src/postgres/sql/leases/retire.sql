-- Marks the lease of incarnation $1 as one that takes no partitions. Primary key: leases. The caller has locked the lease.
update leases set holds = false where incarnation = $1;
