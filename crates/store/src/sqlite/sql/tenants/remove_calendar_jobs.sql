-- Removes the rows of job ?1. Index: calendar_jobs_job.
delete from calendar_jobs indexed by calendar_jobs_job where job = ?1;
