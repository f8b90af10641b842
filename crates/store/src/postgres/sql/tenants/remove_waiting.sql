-- Removes the rows of the runs $1. Primary key: waiting.
delete from waiting where run = any($1);
