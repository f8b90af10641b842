-- Marks a lease as one that takes no partitions. Key: leases.
update leases set holds = 0 where incarnation = ?1;
