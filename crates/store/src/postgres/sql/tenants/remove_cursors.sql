-- Removes the rows of job $1. Primary key: cursors.
delete from cursors where job = $1;
