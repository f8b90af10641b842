-- Up to ?2 jobs after ?1 that are not deleted. Keys: jobs, epochs, cursors.
select j.*, e.epoch, c.next_tick
  from jobs j
 cross join epochs e on e.job = j.id
 cross join cursors c on c.job = j.id
 where j.id > ?1 and j.deleted_at is null
 order by j.id
 limit ?2;
