-- Removes the runs ?1, which have ended and are counted, from the list of their backfill. Primary key: backfill_runs.
delete from backfill_runs where run in (select unhex(value) from json_each(?1));
