-- Reads up to ?1 rows of flow_steps after run ?2, for a move. Primary key: flow_steps.
select run, flow, tenant
  from flow_steps
 where run > ?2
 order by run
 limit ?1;
