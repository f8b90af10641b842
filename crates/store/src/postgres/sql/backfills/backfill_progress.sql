-- Reads backfill $1 with the next $2 bytes of its ticks (8 bytes each). Primary key: backfills.
select tenant, job, created_at, from_at, to_at, newest_first, state, total, position, rate_count, rate_ms, spent_until, payload,
       substring(ticks from position * 8 + 1 for $2) as next
  from backfills
 where id = $1;
