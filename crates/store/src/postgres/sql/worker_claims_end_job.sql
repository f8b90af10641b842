-- Removes the worker claims on the runs of job $1. Index: worker_claims_job.
delete from worker_claims where job = $1;
