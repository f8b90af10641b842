-- Lists the runs (state 1) of the jobs $1 that workers have claimed. Index: worker_claims_job. Primary key: runs.
select r.job, r.id, r.state, r.attempt, r.fence
  from worker_claims c
  join runs r on r.id = c.run and r.state = 1
 where c.job = any($1);
