-- Holds the runs of job $1 that workers hold or that open_claims lists, in order. Indexes: worker_claims_job, open_claims_job;
-- key: runs.
select r.id
  from (select run from worker_claims where job = $1 union select run from open_claims where job = $1) c
  join runs r on r.id = c.run
 where r.state = 1
 order by r.id
   for update of r;
