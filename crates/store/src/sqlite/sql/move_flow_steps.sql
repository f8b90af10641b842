-- Up to ?1 rows behind the key ?2. Key: flow_steps.
select run, flow, tenant
  from flow_steps
 where run > ?2
 order by run
 limit ?1;
