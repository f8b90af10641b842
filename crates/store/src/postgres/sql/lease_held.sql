-- Holds a lease that carries the fence $3, so that raising it waits for us. The clock is read after the lock. Key: leases.
with held as materialized (
    select until, open_from from leases where incarnation = $1 and node = $2 and fence = $3 and not ended for share
)
select everytick_now() as now, until, open_from from held;
