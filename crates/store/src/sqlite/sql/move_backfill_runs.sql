-- Up to ?1 rows behind the key ?2. Key: backfill_runs.
select run, backfill from backfill_runs where run > ?2 order by run limit ?1;
