-- Brings over the ends of runs that flows have not taken in. Key: flow_steps.
insert into flow_steps (run, flow, tenant)
select n.run, n.flow, n.tenant
  from unnest($1::uuid[], $2::uuid[], $3::integer[]) as n (run, flow, tenant);
