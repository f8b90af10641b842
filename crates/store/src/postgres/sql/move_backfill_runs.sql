-- Brings the runs of backfills over that are not counted as over. Key: backfill_runs.
insert into backfill_runs (run, backfill)
select n.run, n.backfill from unnest($1::uuid[], $2::uuid[]) as n (run, backfill);
