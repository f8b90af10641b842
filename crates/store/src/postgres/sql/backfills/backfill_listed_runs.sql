-- Lists the runs of backfill $1 that are not counted yet, with their states; null if the run has no row.
-- Index: backfill_runs_of. Primary key: runs.
select l.run, r.state
  from backfill_runs l
  left join runs r on r.id = l.run
 where l.backfill = $1
 order by l.run;
