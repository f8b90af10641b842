-- Reads the newest run of each of the jobs ?1. Index: runs_history, backwards.
-- `flow` is the run's flow, or its own id if it is the root of one. `state < 2`: waiting or claimed.
select r.id, r.job, j.name as job_name, r.tenant, r.cause, r.scheduled_at, r.due_at, r.state, r.attempt, r.lost, r.fence, r.node, r.worker,
       r.started_at, r.finished_at, r.skip_reason, r.error, null as output, null as payload,
       coalesce(r.flow, case when r.state < 2 and exists (select 1 from job_parents p where p.parent = r.job)
                                or exists (select 1 from flow_steps s where s.run = r.id)
                                or exists (select 1 from flows f where f.id = r.id) then r.id end) as flow
  from json_each(?1) as asked
 cross join jobs j on j.id = unhex(asked.value)
 cross join runs r on r.id = (
        select x.id from runs x indexed by runs_history where x.job = j.id order by x.id desc limit 1);
