-- The incarnations [id, node, lowest claim] have ended under the fence $4: what they had claimed is lost. Key: leases.
insert into leases as l (incarnation, node, fence, until, open_from, ended, version, started_at, renewed_at)
select n.incarnation, n.node, $4, 0, n.open_from, true, '', 0, 0
  from unnest($1::uuid[], $2::text[], $3::uuid[]) as n (incarnation, node, open_from)
on conflict (incarnation) do update set open_from = least(l.open_from, excluded.open_from);
