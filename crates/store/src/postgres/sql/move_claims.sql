-- The incarnations [id, node] have ended under the fence $3: what they had claimed is lost. All of it is listed, so `open_from` lies
-- behind every run. Key: leases.
insert into leases (incarnation, node, fence, until, open_from, ended, version, started_at, renewed_at)
select n.incarnation, n.node, $3, 0, 'ffffffff-ffff-ffff-ffff-ffffffffffff', true, '', 0, 0
  from unnest($1::uuid[], $2::text[]) as n (incarnation, node)
on conflict (incarnation) do nothing;
