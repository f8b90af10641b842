-- Locks the claimed runs (state 1) of job $1 that worker_claims or open_claims lists, in ascending order.
-- Indexes: worker_claims_job, open_claims_job. Primary key: runs.
select r.id
  from (select run from worker_claims where job = $1 union select run from open_claims where job = $1) c
  join runs r on r.id = c.run
 where r.state = 1
 order by r.id
   for update of r;
