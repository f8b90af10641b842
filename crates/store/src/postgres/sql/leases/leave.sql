-- Ends the lease of incarnation $1 under the new fence $2, at time $3. Primary key: leases. The caller has locked the lease.
update leases set ended = true, fence = $2, until = least(until, $3) where incarnation = $1;
