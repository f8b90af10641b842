-- Lists up to ?4 skip ranges of tenant ?1 that end at or after ?2 and have ids below ?3, newest first.
-- Primary key: skip_ranges, backwards.
select g.id, g.tenant, g.job, j.name as job_name, g.from_tick, g.to_tick, g.count, g.reason, g.recorded_at
  from skip_ranges g
  left join jobs j on j.id = g.job
 where g.tenant = ?1 and g.to_tick >= ?2 and g.id < ?3
 order by g.id desc
 limit ?4;
