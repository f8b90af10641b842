-- Raises the fence of a lease that is held alone. Key: leases.
update leases set fence = $2 where incarnation = $1;
