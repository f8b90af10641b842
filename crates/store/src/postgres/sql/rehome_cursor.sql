-- The cursor of job $1 stands in partition $2. Key: cursors.
update cursors set partition = $2 where job = $1;
