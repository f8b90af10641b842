-- Reads, without a lock, the lease of incarnation $1 and node $2 that carries fence $3. Primary key: leases.
-- For transactions that only read.
select everytick_now() as now, until, open_from from leases where incarnation = $1 and node = $2 and fence = $3 and not ended;
