-- Moves the cursor of job $1 to partition $2. Primary key: cursors.
update cursors set partition = $2 where job = $1;
