-- Removes the rows of the jobs in $1. Key: last_runs.
delete from last_runs where job = any($1);
