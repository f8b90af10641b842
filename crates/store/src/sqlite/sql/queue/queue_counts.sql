-- Lists the waiting runs of the jobs ?1, with whether they are due at ?2, and the runs that workers have claimed.
-- Indexes: waiting_job, worker_claims_job.
select w.job, w.run, 0 as claimed, w.attempts, w.due_at <= ?2 as due, w.force
  from json_each(?1) as asked
 cross join waiting w indexed by waiting_job on w.job = unhex(asked.value)
 union all
select c.job, c.run, 1 as claimed, 1 as attempts, 0 as due, 0 as force
  from json_each(?1) as asked
 cross join worker_claims c indexed by worker_claims_job on c.job = unhex(asked.value);
