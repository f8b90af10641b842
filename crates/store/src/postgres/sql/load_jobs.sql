-- The jobs named in $1, deleted ones too, as asked. Keys: jobs, epochs, cursors.
select j.*, e.epoch, e.partition, c.next_tick
  from unnest($1::uuid[]) with ordinality as asked (job, place)
  join jobs j on j.id = asked.job
  join epochs e on e.job = asked.job
  join cursors c on c.job = asked.job
 order by asked.place;
