-- The jobs named in ?1, deleted ones too. Keys: jobs, epochs, cursors.
select j.*, e.epoch, c.next_tick
  from json_each(?1) as asked
 cross join jobs j on j.id = unhex(asked.value)
 cross join epochs e on e.job = j.id
 cross join cursors c on c.job = j.id
 order by asked.key;
