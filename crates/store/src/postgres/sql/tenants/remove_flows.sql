-- Removes the rows of the runs $1. Primary key: flows.
delete from flows where id = any($1);
