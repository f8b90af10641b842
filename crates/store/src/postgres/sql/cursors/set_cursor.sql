-- Sets the cursor of job $1 to $2. Primary key: cursors. The caller has locked the job.
update cursors set next_tick = $2 where job = $1;
