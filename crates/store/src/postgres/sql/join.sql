-- Makes the lease of an incarnation, or takes it again. Key: leases.
insert into leases as l (incarnation, node, fence, until, open_from, ended, region, version, started_at, renewed_at,
                         holds, reads_short, lists_claims, host, pid, process, can, listen, ttl_ms)
values ($1, $2, $3, $4, $5, false, $6, $7, $8, $8, $9, true, true, $10, $11, $12, $13, $14, $15)
on conflict (incarnation) do update
   set node = excluded.node, fence = excluded.fence, until = excluded.until, ended = false,
       open_from = least(l.open_from, excluded.open_from), region = excluded.region, version = excluded.version,
       renewed_at = excluded.renewed_at, holds = excluded.holds, reads_short = true, lists_claims = true,
       host = excluded.host, pid = excluded.pid, process = excluded.process, can = excluded.can, listen = excluded.listen,
       ttl_ms = excluded.ttl_ms;
