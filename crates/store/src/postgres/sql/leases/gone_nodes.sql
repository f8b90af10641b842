-- Lists up to $2 starts of nodes that ended, were alive at $1 or later, and have no lease of the same name, the last one first.
-- Scans gone_nodes and leases, small tables. An ended lease stays until its claims are settled.
select node, region, version, can, started_at, renewed_at
  from (select node, region, version, can, started_at, renewed_at from gone_nodes where renewed_at >= $1
        union all
        select node, region, version, can, started_at, renewed_at from leases where renewed_at >= $1 and ended) gone
 where not exists (select 1 from leases l where l.node = gone.node and not l.ended)
 order by renewed_at desc, node
 limit $2;
