-- How many runs of job $1 wait. Index: waiting_job.
select count(*) from waiting where job = $1;
