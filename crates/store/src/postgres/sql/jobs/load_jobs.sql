-- Reads the jobs $1, deleted ones too, in the order of the array. Primary keys: jobs, epochs, cursors.
-- Leaves out the columns that only list filters need.
select j.id, j.name, j.tenant, j.version, j.spec, j.created_at, j.created_by, j.updated_at, j.paused_at, j.pause_note,
       j.deleted_at, e.epoch, e.partition, c.next_tick
  from unnest($1::uuid[]) with ordinality as asked (job, place)
  join jobs j on j.id = asked.job
  join epochs e on e.job = asked.job
  join cursors c on c.job = asked.job
 order by asked.place;
