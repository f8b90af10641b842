-- The newest run of each job in ?1. Index: runs_history, backwards.
select r.id, r.job, j.name as job_name, r.tenant, r.cause, r.scheduled_at, r.due_at, r.state, r.attempt, r.lost, r.fence, r.node, r.worker,
       r.started_at, r.finished_at, r.skip_reason, r.error, null as output, null as payload
  from json_each(?1) as asked
 cross join jobs j on j.id = unhex(asked.value)
 cross join runs r on r.id = (
        select x.id from runs x indexed by runs_history where x.job = j.id order by x.id desc limit 1);
