-- The runs of the jobs named in $1 that workers hold. Index: worker_claims_job; key: runs.
select r.job, r.id, r.state, r.attempt, r.fence
  from worker_claims c
  join runs r on r.id = c.run and r.state = 1
 where c.job = any($1);
