-- The runs in ?1 are over, and counted. Key: backfill_runs.
delete from backfill_runs where run in (select unhex(value) from json_each(?1));
