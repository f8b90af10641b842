-- Inserts the lease of incarnation ?1, or revives it if it exists. Primary key: leases.
-- ?2 node, ?3 fence, ?4 until, ?5 open_from, ?6 region, ?7 version, ?8 time, ?9 whether it takes partitions, ?10 host, ?11 pid,
-- ?12 process, ?13 can, ?14 listen; ?15 is for PostgreSQL. An open_from that exists is never raised: it covers the older claims.
insert into leases (incarnation, node, fence, until, open_from, ended, region, version, started_at, renewed_at, holds,
                    host, pid, process, can, listen)
values (?1, ?2, ?3, ?4, ?5, 0, ?6, ?7, ?8, ?8, ?9, ?10, ?11, ?12, ?13, ?14)
on conflict (incarnation) do update
   set node = excluded.node, fence = excluded.fence, until = excluded.until, ended = 0,
       open_from = min(open_from, excluded.open_from), region = excluded.region, version = excluded.version,
       renewed_at = excluded.renewed_at, holds = excluded.holds, host = excluded.host, pid = excluded.pid,
       process = excluded.process, can = excluded.can, listen = excluded.listen;
