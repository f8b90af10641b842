-- Job ?1 names no calendar any more. Index: calendar_jobs_job.
delete from calendar_jobs where job = ?1;
