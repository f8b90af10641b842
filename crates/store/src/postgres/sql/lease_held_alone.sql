-- The same, for whoever will change the lease: two that share it and then want to change it would wait for each other.
with held as materialized (
    select until, open_from from leases where incarnation = $1 and node = $2 and fence = $3 and not ended for no key update
)
select everytick_now() as now, until, open_from from held;
