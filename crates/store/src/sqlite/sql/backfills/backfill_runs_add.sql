-- Adds the runs ?1 to the list of backfill ?2. Primary key: backfill_runs.
insert into backfill_runs (run, backfill) select unhex(value), ?2 from json_each(?1);
