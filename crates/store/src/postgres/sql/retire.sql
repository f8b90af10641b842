-- Marks a lease, held alone, as one that takes no partitions. Key: leases.
update leases set holds = false where incarnation = $1;
