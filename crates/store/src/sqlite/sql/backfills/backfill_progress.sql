-- Reads backfill ?1 with the next ?2 bytes of its ticks (8 bytes each). Primary key: backfills.
select b.tenant, b.job, b.created_at, b.from_at, b.to_at, b.newest_first, b.state, b.total, b.position, b.rate_count, b.rate_ms, b.spent_until, b.payload,
       substr(b.ticks, b.position * 8 + 1, ?2) as next
  from backfills b
 where b.id = ?1;
