-- Share-locks the lease of incarnation $1 and node $2 that carries fence $3, so that raising the fence waits for this
-- transaction. Primary key: leases. Reads the clock after the lock.
with locked as materialized (
    select until, open_from from leases where incarnation = $1 and node = $2 and fence = $3 and not ended for share
)
select everytick_now() as now, until, open_from from locked;
