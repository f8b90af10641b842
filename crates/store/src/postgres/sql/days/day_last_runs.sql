-- Copies the last run of each live job in the day to last_runs, if the job has no run with an id from $1 on.
-- Index: runs_history, of the day and of the later days. A newer row in last_runs stays.
insert into last_runs as l (
    id, tenant, cause, state, job, scheduled_at, due_at, fence, started_at, finished_at, attempt, lost, skip_reason, late, force,
    incarnation, node, error, output, payload, worker, flow)
select r.id, r.tenant, r.cause, r.state, r.job, r.scheduled_at, r.due_at, r.fence, r.started_at, r.finished_at, r.attempt, r.lost,
       r.skip_reason, r.late, r.force, r.incarnation, r.node, r.error, r.output, r.payload, r.worker, r.flow
  from (select distinct on (job) * from runs_of_the_day order by job, id desc) r
 where exists (select 1 from jobs j where j.id = r.job and j.deleted_at is null)
   and not exists (select 1 from runs n where n.job = r.job and n.id >= $1)
on conflict (job) do update
   set id = excluded.id, tenant = excluded.tenant, cause = excluded.cause, state = excluded.state,
       scheduled_at = excluded.scheduled_at, due_at = excluded.due_at, fence = excluded.fence,
       started_at = excluded.started_at, finished_at = excluded.finished_at, attempt = excluded.attempt,
       lost = excluded.lost, skip_reason = excluded.skip_reason, late = excluded.late, force = excluded.force,
       incarnation = excluded.incarnation, node = excluded.node, error = excluded.error, output = excluded.output,
       payload = excluded.payload, worker = excluded.worker, flow = excluded.flow
 where l.id < excluded.id;
