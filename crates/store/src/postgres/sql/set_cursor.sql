-- Sets the cursor of job $1, under its lock. Key: cursors.
update cursors set next_tick = $2 where job = $1;
