-- Makes the lease of an incarnation, or takes it again. Key: leases.
insert into leases (incarnation, node, fence, until, open_from, ended) values (?1, ?2, ?3, ?4, ?5, 0)
on conflict (incarnation) do update
   set node = excluded.node, fence = excluded.fence, until = excluded.until, ended = 0,
       open_from = min(open_from, excluded.open_from);
