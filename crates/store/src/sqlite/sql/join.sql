-- Makes the lease of an incarnation, or takes it again. Key: leases.
insert into leases (incarnation, node, fence, until, open_from, ended, region, version, started_at, renewed_at, holds,
                    host, pid, process, can, listen)
values (?1, ?2, ?3, ?4, ?5, 0, ?6, ?7, ?8, ?8, ?9, ?10, ?11, ?12, ?13, ?14)
on conflict (incarnation) do update
   set node = excluded.node, fence = excluded.fence, until = excluded.until, ended = 0,
       open_from = min(open_from, excluded.open_from), region = excluded.region, version = excluded.version,
       renewed_at = excluded.renewed_at, holds = excluded.holds, host = excluded.host, pid = excluded.pid,
       process = excluded.process, can = excluded.can, listen = excluded.listen;
