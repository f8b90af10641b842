-- Reads jobs whose cursors were just read, in any order. Arrays: $1 job, $2 next_tick. Primary keys: jobs, epochs.
select {{job}}, e.epoch, e.partition, asked.next_tick
  from unnest($1::uuid[], $2::bigint[]) as asked (job, next_tick)
  join jobs j on j.id = asked.job
  join epochs e on e.job = asked.job;
