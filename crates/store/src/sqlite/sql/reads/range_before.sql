-- Reads the last skip range of job ?2 of tenant ?1 that begins before id ?3. Index: skip_ranges_history, backwards.
select g.id, g.tenant, g.job, null as job_name, g.from_tick, g.to_tick, g.count, g.reason, g.recorded_at
  from skip_ranges g indexed by skip_ranges_history
 where g.tenant = ?1 and g.job = ?2 and g.id < ?3
 order by g.id desc
 limit 1;
