-- Reads the deleted job of tenant $1 with id $2. Primary keys: jobs, epochs, cursors.
select {{job}}, e.epoch, e.partition, c.next_tick
  from jobs j
  join epochs e on e.job = j.id
  join cursors c on c.job = j.id
 where j.id = $2 and j.tenant = $1 and j.deleted_at is not null;
