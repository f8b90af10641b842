-- Lists the runs of the jobs ?1 that are in progress: claimed by workers, or waiting between two attempts.
-- Indexes: worker_claims_job, waiting_tried.
select c.job, c.run, c.key, 1 as claimed
  from json_each(?1) as asked
 cross join worker_claims c indexed by worker_claims_job on c.job = unhex(asked.value)
 union all
select w.job, w.run, w.key, 0 as claimed
  from json_each(?1) as asked
 cross join waiting w indexed by waiting_tried on w.job = unhex(asked.value) and w.attempts > 0;
