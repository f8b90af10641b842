-- The waiting runs of the jobs named in $1. Index: waiting_job; key: runs.
select r.job, r.id, r.state, r.attempt, r.fence
  from unnest($1::uuid[]) as asked (job)
  join waiting w on w.job = asked.job
  join runs r on r.id = w.run and r.state = 0;
