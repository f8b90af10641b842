-- Removes all calendars from the calendar list of job $1. Index: calendar_jobs_job.
delete from calendar_jobs where job = $1;
