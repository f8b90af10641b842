-- Looks at a lease that carries the fence $3, for those who only read. Key: leases.
select everytick_now() as now, until, open_from from leases where incarnation = $1 and node = $2 and fence = $3 and not ended;
