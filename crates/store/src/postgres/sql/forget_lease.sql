-- Removes an ended lease that has no claims left. Key: leases.
delete from leases where incarnation = $1 and ended;
