-- Removes the last run of job $1. Primary key: last_runs.
delete from last_runs where job = $1;
