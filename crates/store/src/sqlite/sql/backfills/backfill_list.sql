-- Lists up to ?4 backfills of job ?2 of tenant ?1 with ids below ?3, newest first, without payloads.
-- Indexes: backfills_job, backfill_runs_of. Primary key: runs.
-- Adds the ended runs that are still listed in backfill_runs to the stored counts. Run states: 2 succeeded, 3 failed, above 3
-- cancelled or skipped. A listed run without a row counts as cancelled.
select b.id, b.tenant, b.job, j.name as job_name, b.from_at, b.to_at, b.newest_first, b.rate_count, b.rate_ms, null as payload, b.state,
       b.total, b.position, b.created_at, b.created_by, b.finished_at, b.note,
       b.succeeded + (select count(*) from backfill_runs l indexed by backfill_runs_of cross join runs r on r.id = l.run
                       where l.backfill = b.id and r.state = 2) as succeeded,
       b.failed + (select count(*) from backfill_runs l indexed by backfill_runs_of cross join runs r on r.id = l.run
                    where l.backfill = b.id and r.state = 3) as failed,
       b.cancelled + (select count(*) from backfill_runs l indexed by backfill_runs_of left join runs r on r.id = l.run
                       where l.backfill = b.id and coalesce(r.state, 4) > 3) as cancelled
  from backfills b indexed by backfills_job
  left join jobs j on j.id = b.job
 where b.job = ?2 and b.id < ?3 and b.tenant = ?1
 order by b.id desc
 limit ?4;
