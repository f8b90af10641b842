-- Lists the waiting runs of the jobs $1, with whether they are due at $2, and the runs that workers have claimed.
-- Indexes: waiting_job, worker_claims_job.
select w.job, w.run, false as claimed, w.attempts, w.due_at <= $2 as due, w.force from waiting w where w.job = any($1)
 union all
select c.job, c.run, true as claimed, 1 as attempts, false as due, false as force from worker_claims c where c.job = any($1);
