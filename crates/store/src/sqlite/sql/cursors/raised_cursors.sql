-- Lists the jobs that still have the planned epoch and whose cursor is at least as high as planned.
-- Primary keys: epochs, cursors. ?1 JSON array of [job, epoch, cursor].
select e.job
  from json_each(?1) as u
 cross join epochs e on e.job = unhex(u.value ->> 0) and e.epoch = u.value ->> 1
 cross join cursors c on c.job = e.job and (c.next_tick is null or c.next_tick >= u.value ->> 2)
 order by u.key;
