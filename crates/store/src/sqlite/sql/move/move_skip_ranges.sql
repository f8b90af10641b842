-- Reads up to ?1 rows of skip_ranges after id ?2, for a move. Primary key: skip_ranges.
select id, tenant, job, from_tick, to_tick, count, reason, recorded_at
  from skip_ranges
 where id > ?2
 order by id
 limit ?1;
