-- Lists up to $4 backfills of job $2 of tenant $1 with ids below $3, newest first, without payloads.
-- Indexes: backfills_job, backfill_runs_of. Primary key: runs.
-- Adds the ended runs that are still listed in backfill_runs to the stored counts. Run states: 2 succeeded, 3 failed, above 3
-- cancelled or skipped. A listed run without a row counts as cancelled.
select b.id, b.tenant, b.job, j.name as job_name, b.from_at, b.to_at, b.newest_first, b.rate_count, b.rate_ms, null::text as payload, b.state,
       b.total, b.position, b.created_at, b.created_by, b.finished_at, b.note,
       b.succeeded + o.succeeded as succeeded, b.failed + o.failed as failed, b.cancelled + o.cancelled as cancelled
  from backfills b
  left join jobs j on j.id = b.job
 cross join lateral (
        select (count(*) filter (where r.state = 2))::integer as succeeded,
               (count(*) filter (where r.state = 3))::integer as failed,
               (count(*) filter (where coalesce(r.state, 4) > 3))::integer as cancelled
          from backfill_runs l
          left join runs r on r.id = l.run
         where l.backfill = b.id) o
 where b.job = $2 and b.id < $3 and b.tenant = $1
 order by b.id desc
 limit $4;
