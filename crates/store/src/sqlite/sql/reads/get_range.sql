-- Reads skip range ?2 of tenant ?1. Primary key: skip_ranges.
select g.id, g.tenant, g.job, j.name as job_name, g.from_tick, g.to_tick, g.count, g.reason, g.recorded_at
  from skip_ranges g
  left join jobs j on j.id = g.job
 where g.id = ?2 and g.tenant = ?1;
