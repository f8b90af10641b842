-- The runs $1 are over, and counted. Key: backfill_runs.
delete from backfill_runs where run = any($1);
