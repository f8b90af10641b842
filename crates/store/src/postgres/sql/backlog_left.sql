-- How many runs of job $1 up to lot $2 wait, counted up to $3. Index: waiting_job.
select count(*) from (select 1 from waiting where job = $1 and lot <= $2 limit $3) w;
