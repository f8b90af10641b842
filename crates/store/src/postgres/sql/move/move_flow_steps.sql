-- Inserts moved flow steps. Arrays: $1 run, $2 flow, $3 tenant. Primary key: flow_steps.
insert into flow_steps (run, flow, tenant)
select n.run, n.flow, n.tenant
  from unnest($1::uuid[], $2::uuid[], $3::integer[]) as n (run, flow, tenant);
