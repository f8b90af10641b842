-- Reads the live job of tenant $1 with name $2. Index: jobs_name. Primary keys: epochs, cursors.
select {{job}}, e.epoch, e.partition, c.next_tick
  from jobs j
  join epochs e on e.job = j.id
  join cursors c on c.job = j.id
 where j.tenant = $1 and j.name = $2 and j.deleted_at is null;
