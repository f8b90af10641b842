-- Lists the runs of the jobs $1 that are in progress: claimed by workers, or waiting between two attempts.
-- Indexes: worker_claims_job, waiting_tried.
select c.job, c.run, c.key, true as claimed from worker_claims c where c.job = any($1)
 union all
select w.job, w.run, w.key, false as claimed from waiting w where w.job = any($1) and w.attempts > 0;
