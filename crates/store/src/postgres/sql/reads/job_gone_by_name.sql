-- Reads the most recently deleted job of tenant $1 with name $2. Index: jobs_deleted, backwards. Primary keys: epochs, cursors.
select {{job}}, e.epoch, e.partition, c.next_tick
  from jobs j
  join epochs e on e.job = j.id
  join cursors c on c.job = j.id
 where j.deleted_at is not null and j.tenant = $1 and j.name = $2
 order by j.deleted_at desc
 limit 1;
