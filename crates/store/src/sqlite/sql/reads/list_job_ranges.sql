-- Lists up to ?4 skip ranges of job ?6 of tenant ?1 that end at or after ?2 and have ids below ?3, newest first.
-- Index: skip_ranges_history, backwards.
-- ?5 labels of the job as a JSON array of [key, value]; null if unset.
select g.id, g.tenant, g.job, j.name as job_name, g.from_tick, g.to_tick, g.count, g.reason, g.recorded_at
  from skip_ranges g indexed by skip_ranges_history
  left join jobs j on j.id = g.job
 where g.tenant = ?1 and g.job = ?6 and g.to_tick >= ?2 and g.id < ?3
   and (?5 is null or not exists (
         select 1 from json_each(?5) as w
          where not exists (
                  select 1 from json_each(j.spec, '$.labels') as l
                   where l.key = w.value ->> 0 and (w.value ->> 1 is null or l.value = w.value ->> 1))))
 order by g.id desc
 limit ?4;
