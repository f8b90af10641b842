-- Removes the runs $1 from waiting. Primary key: waiting.
delete from waiting where run = any($1);
