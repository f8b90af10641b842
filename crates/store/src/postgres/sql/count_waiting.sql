-- How many runs of job $1 wait, counted up to $2. Index: waiting_job.
select count(*) from (select 1 from waiting where job = $1 limit $2) w;
