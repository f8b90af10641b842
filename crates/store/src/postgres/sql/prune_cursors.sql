-- Removes the rows of the jobs in $1. Key: cursors.
delete from cursors where job = any($1);
