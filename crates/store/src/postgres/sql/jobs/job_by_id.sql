-- Reads the live job of tenant $1 with id $2. Primary keys: jobs, epochs, cursors.
select j.id, j.name, j.tenant, j.version, j.spec, j.created_at, j.created_by, j.updated_at, j.paused_at, j.pause_note,
       j.deleted_at, e.epoch, e.partition, c.next_tick
  from jobs j
  join epochs e on e.job = j.id
  join cursors c on c.job = j.id
 where j.id = $2 and j.tenant = $1 and j.deleted_at is null;
