-- Removes the rows of the runs $1. Primary key: backfill_runs.
delete from backfill_runs where run = any($1);
