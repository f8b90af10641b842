-- Up to ?1 rows behind the key ?2. Key: skip_ranges.
select id, tenant, job, from_tick, to_tick, count, reason, recorded_at
  from skip_ranges
 where id > ?2
 order by id
 limit ?1;
