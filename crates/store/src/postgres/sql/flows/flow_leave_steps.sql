-- Adds a flow step for each of the runs $1 that has ended (state 2 or higher) and is part of a flow or of a job with children.
-- Primary keys: runs, flow_steps. Index: job_parents_parent.
insert into flow_steps (run, flow, tenant)
select r.id, coalesce(r.flow, r.id), r.tenant
  from runs r
 where r.id = any($1) and r.state >= 2
   and (r.flow is not null or exists (select 1 from job_parents p where p.parent = r.job))
on conflict (run) do nothing;
