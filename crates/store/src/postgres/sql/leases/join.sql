-- Inserts the lease of incarnation $1, or revives it if it exists. Primary key: leases.
-- $2 node, $3 fence, $4 until, $5 open_from, $6 region, $7 version, $8 time, $9 whether it takes partitions, $10 host, $11 pid,
-- $12 process, $13 can, $14 listen, $15 ttl_ms. An open_from that exists is never raised: it covers the older claims.
insert into leases as l (incarnation, node, fence, until, open_from, ended, region, version, started_at, renewed_at,
                         holds, reads_short, lists_claims, host, pid, process, can, listen, ttl_ms,
                         checks_tokens, fills_secrets, knows_tenants)
values ($1, $2, $3, $4, $5, false, $6, $7, $8, $8, $9, true, true, $10, $11, $12, $13, $14, $15, true, true, true)
on conflict (incarnation) do update
   set node = excluded.node, fence = excluded.fence, until = excluded.until, ended = false,
       open_from = least(l.open_from, excluded.open_from), region = excluded.region, version = excluded.version,
       renewed_at = excluded.renewed_at, holds = excluded.holds, reads_short = true, lists_claims = true,
       host = excluded.host, pid = excluded.pid, process = excluded.process, can = excluded.can, listen = excluded.listen,
       ttl_ms = excluded.ttl_ms, checks_tokens = true, fills_secrets = true,
       knows_tenants = true;
