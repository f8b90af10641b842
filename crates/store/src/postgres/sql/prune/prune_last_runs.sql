-- Removes the last_runs rows of the jobs $1. Primary key: last_runs.
delete from last_runs where job = any($1);
