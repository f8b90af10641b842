-- Reads up to ?1 rows of backfill_runs after run ?2, for a move. Primary key: backfill_runs.
select run, backfill from backfill_runs where run > ?2 order by run limit ?1;
