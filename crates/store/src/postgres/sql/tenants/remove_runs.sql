-- Removes the rows of the runs $1. Primary key: runs.
delete from runs where id = any($1);
