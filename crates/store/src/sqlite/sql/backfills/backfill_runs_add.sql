-- Adds the runs ?1 to the list of backfill ?2 of tenant ?3. Primary key: backfill_runs.
insert into backfill_runs (run, backfill, tenant) select unhex(value), ?2, ?3 from json_each(?1);
