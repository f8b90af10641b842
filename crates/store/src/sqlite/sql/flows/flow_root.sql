-- Reads run ?1 as the root of a flow, and whether its end is a step that is not applied yet. Primary keys: runs, flow_steps.
select job, tenant, scheduled_at, state, exists (select 1 from flow_steps s where s.run = id) as stepped
  from runs
 where id = ?1 and flow is null;
