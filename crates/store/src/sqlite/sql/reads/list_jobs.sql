-- Lists up to ?8 live jobs of tenant ?1 after name ?2, by name. Index: jobs_name. Primary keys: epochs, cursors.
-- Filters, each null or empty if unset: ?3 enabled, ?4 paused, ?5 target, ?6 JSON array of label [key, value], ?7 search text.
select j.*, e.epoch, c.next_tick
  from jobs j indexed by jobs_name
  join epochs e on e.job = j.id
  join cursors c on c.job = j.id
 where j.tenant = ?1 and j.name > ?2 and j.deleted_at is null
   and (?3 is null or (j.spec ->> '$.enabled') = ?3)
   and (?4 is null or (j.paused_at is not null) = ?4)
   and (?5 is null or exists (select 1 from json_each(j.spec, '$.target') as t where t.key = ?5))
   and not exists (
         select 1 from json_each(?6) as f
          where not exists (
                  select 1 from json_each(j.spec, '$.labels') as l
                   where l.key = f.value ->> 0 and (f.value ->> 1 is null or l.value = f.value ->> 1)))
   and (?7 is null or instr(lower(j.name), ?7) > 0 or instr(lower(j.spec ->> '$.description'), ?7) > 0)
 order by j.name
 limit ?8;
