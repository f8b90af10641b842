-- Inserts moved backfill_runs: runs that their backfill has not counted yet. Arrays: $1 run, $2 backfill.
-- Primary key: backfill_runs.
insert into backfill_runs (run, backfill)
select n.run, n.backfill from unnest($1::uuid[], $2::uuid[]) as n (run, backfill);
