-- Locks the lease of incarnation $1, which waits until its claims in flight have ended: each of them share-locks the lease.
-- Primary key: leases. Claims that begin later see the backlog mark.
select 1 from leases where incarnation = $1 for no key update;
