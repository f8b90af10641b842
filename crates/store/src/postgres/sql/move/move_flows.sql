-- Inserts moved flows. Primary key: flows.
-- Arrays: $1 id, $2 tenant, $3 opened_at, $4 scheduled_at, $5 rerun_of, $6 cancelled_at, $7 graph.
insert into flows (id, tenant, opened_at, scheduled_at, rerun_of, cancelled_at, graph)
select n.id, n.tenant, n.opened_at, n.scheduled_at, n.rerun_of, n.cancelled_at, n.graph
  from unnest($1::uuid[], $2::integer[], $3::bigint[], $4::bigint[], $5::uuid[], $6::bigint[], $7::text[])
           as n (id, tenant, opened_at, scheduled_at, rerun_of, cancelled_at, graph);
