-- Marks the lease of incarnation ?1 as one that takes no partitions. Primary key: leases.
update leases set holds = 0 where incarnation = ?1;
