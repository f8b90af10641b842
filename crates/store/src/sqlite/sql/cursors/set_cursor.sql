-- Sets the cursor of job ?1 to ?2. Primary key: cursors.
update cursors set next_tick = ?2 where job = ?1;
