-- Reads the newest run of each of the jobs $1. Index: runs_history, backwards. Primary key: last_runs.
-- `flow` is the run's flow, or its own id if it is the root of one. `state < 2`: waiting or claimed.
select r.id, r.job, j.name as job_name, r.tenant, r.cause, r.scheduled_at, r.due_at, r.state, r.attempt, r.lost, r.fence, r.node, r.worker,
       r.started_at, r.finished_at, r.skip_reason, r.error, null::text as output, null::text as payload,
       coalesce(r.flow, case when r.state < 2 and exists (select 1 from job_parents p where p.parent = r.job)
                                or exists (select 1 from flow_steps s where s.run = r.id)
                                or exists (select 1 from flows f where f.id = r.id) then r.id end) as flow
  from unnest($1::uuid[]) as asked (job)
  join jobs j on j.id = asked.job
 cross join lateral (
        (select x.id, x.job, x.tenant, x.cause, x.scheduled_at, x.due_at, x.state, x.attempt, x.lost, x.fence, x.node, x.worker,
               x.started_at, x.finished_at, x.skip_reason, x.error, x.flow
           from runs x
          where x.job = j.id
          order by x.id desc
          limit 1)
        union all
        select x.id, x.job, x.tenant, x.cause, x.scheduled_at, x.due_at, x.state, x.attempt, x.lost, x.fence, x.node, x.worker,
               x.started_at, x.finished_at, x.skip_reason, x.error, x.flow
          from last_runs x
         where x.job = j.id
         order by id desc
         limit 1) r;
