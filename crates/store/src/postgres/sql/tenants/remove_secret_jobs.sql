-- Removes the rows of job $1. Index: secret_jobs_job.
delete from secret_jobs where job = $1;
