-- Reads up to ?1 rows of backfills after id ?2, for a move. Primary key: backfills.
select id, tenant, job, from_at, to_at, newest_first, rate_count, rate_ms, spent_until, payload, total, position,
       succeeded, failed, cancelled, state, active, created_at, created_by, finished_at, note, ticks
  from backfills
 where id > ?2
 order by id
 limit ?1;
