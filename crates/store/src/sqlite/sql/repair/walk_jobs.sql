-- Reads up to ?2 live jobs after id ?1, in order of id. Primary keys: jobs, epochs, cursors.
select j.*, e.epoch, c.next_tick
  from jobs j
 cross join epochs e on e.job = j.id
 cross join cursors c on c.job = j.id
 where j.id > ?1 and j.deleted_at is null
 order by j.id
 limit ?2;
