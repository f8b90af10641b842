-- Lists up to $9 live jobs of tenant $1 after name $2, by name. Index: jobs_name. Primary keys: epochs, cursors.
-- Filters, each null or empty if unset: $3 enabled, $4 paused, $5 target, $6 and $7 label keys and values, $8 search text.
select {{job}}, e.epoch, e.partition, c.next_tick
  from jobs j
  join epochs e on e.job = j.id
  join cursors c on c.job = j.id
 where j.tenant = $1 and j.name > $2 and j.deleted_at is null
   and ($3::boolean is null or j.enabled = $3)
   and ($4::boolean is null or (j.paused_at is not null) = $4)
   and ($5::text is null or j.target = $5)
   and not exists (
         select 1 from unnest($6::text[], $7::text[]) as f (key, value)
          where not (jsonb_exists(j.labels, f.key) and (f.value is null or j.labels ->> f.key = f.value)))
   and ($8::text is null or strpos(j.search, $8) > 0 or strpos(lower(j.name), $8) > 0)
 order by j.name
 limit $9;
