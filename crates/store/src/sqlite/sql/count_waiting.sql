-- How many runs of job ?1 wait. Index: waiting_job.
select count(*) from waiting indexed by waiting_job where job = ?1;
