-- Removes the rows of the runs $1. Primary key: attempts.
delete from attempts where run = any($1);
