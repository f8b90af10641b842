-- The newest run of each job in $1. Index: runs_history, backwards; key: last_runs.
select r.id, r.job, j.name as job_name, r.tenant, r.cause, r.scheduled_at, r.due_at, r.state, r.attempt, r.lost, r.fence, r.node,
       r.started_at, r.finished_at, r.skip_reason, r.error, null::text as output, null::text as payload
  from unnest($1::uuid[]) as asked (job)
  join jobs j on j.id = asked.job
 cross join lateral (
        select * from (select x.* from runs x where x.job = j.id order by x.id desc limit 1) as kept
        union all
        select * from (select x.* from last_runs x where x.job = j.id) as gone
         order by id desc
         limit 1) r;
