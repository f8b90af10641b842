-- As lock_lease.sql ($1 incarnation, $2 node, $3 fence), but with an exclusive lock, for a transaction that updates the lease.
-- Primary key: leases. Two transactions that both share the lock and then update the lease would deadlock.
with locked as materialized (
    select until, open_from from leases where incarnation = $1 and node = $2 and fence = $3 and not ended for no key update
)
select everytick_now() as now, until, open_from from locked;
