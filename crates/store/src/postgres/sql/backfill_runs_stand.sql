-- The runs of backfill $1 that are not counted as over, each with its state where it is on the record. Index: backfill_runs_of; key: runs.
select l.run, r.state
  from backfill_runs l
  left join runs r on r.id = l.run
 where l.backfill = $1
 order by l.run;
