-- Ends a lease that is held alone, under a raised fence. Key: leases.
update leases set ended = true, fence = $2, until = least(until, $3) where incarnation = $1;
