-- Reads the jobs $1, deleted ones too, in the order of the array. Primary keys: jobs, epochs, cursors.
-- Leaves out the columns that only list filters need.
select {{job}}, e.epoch, e.partition, c.next_tick
  from unnest($1::uuid[]) with ordinality as asked (job, place)
  join jobs j on j.id = asked.job
  join epochs e on e.job = asked.job
  join cursors c on c.job = asked.job
 order by asked.place;
