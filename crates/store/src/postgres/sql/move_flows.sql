-- Brings flows over. Key: flows.
insert into flows (id, tenant, opened_at, scheduled_at, rerun_of, cancelled_at, graph)
select n.id, n.tenant, n.opened_at, n.scheduled_at, n.rerun_of, n.cancelled_at, n.graph
  from unnest($1::uuid[], $2::integer[], $3::bigint[], $4::bigint[], $5::uuid[], $6::bigint[], $7::text[])
           as n (id, tenant, opened_at, scheduled_at, rerun_of, cancelled_at, graph);
