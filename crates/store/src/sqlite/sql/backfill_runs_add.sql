-- Notes that the runs in ?1 are of backfill ?2. Key: backfill_runs.
insert into backfill_runs (run, backfill) select unhex(value), ?2 from json_each(?1);
