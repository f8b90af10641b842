-- Removes the rows of job $1. Index: calendar_jobs_job.
delete from calendar_jobs where job = $1;
