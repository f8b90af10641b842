-- Removes the claims on runs of job $1. Index: worker_claims_job.
delete from worker_claims where job = $1;
