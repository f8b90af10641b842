-- Inserts ended leases, under fence $3, for the nodes of the source: their claims are lost. Arrays: $1 incarnation, $2 node.
-- Primary key: leases. open_from is the highest id, because all their claims are in open_claims (move_claims_list.sql).
insert into leases (incarnation, node, fence, until, open_from, ended, version, started_at, renewed_at)
select n.incarnation, n.node, $3, 0, 'ffffffff-ffff-ffff-ffff-ffffffffffff', true, '', 0, 0
  from unnest($1::uuid[], $2::text[]) as n (incarnation, node)
on conflict (incarnation) do nothing;
