-- Holds the runs of job $1 that workers hold, in order. Index: worker_claims_job; key: runs.
select r.id from worker_claims c join runs r on r.id = c.run where c.job = $1 and r.state = 1 order by r.id for update of r;
