-- The jobs named in $1, deleted ones too, as asked. Keys: jobs, epochs, cursors. What only lists filter by is left out.
select j.id, j.name, j.tenant, j.version, j.spec, j.created_at, j.created_by, j.updated_at, j.paused_at, j.pause_note,
       j.deleted_at, e.epoch, e.partition, c.next_tick
  from unnest($1::uuid[]) with ordinality as asked (job, place)
  join jobs j on j.id = asked.job
  join epochs e on e.job = asked.job
  join cursors c on c.job = asked.job
 order by asked.place;
