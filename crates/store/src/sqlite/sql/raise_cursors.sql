-- Raises the cursors [job, epoch, cursor] of jobs that still have that epoch; lowers none. Keys: cursors, epochs.
update cursors set next_tick = u.value ->> 2
  from json_each(?1) as u
 where cursors.job = unhex(u.value ->> 0)
   and cursors.next_tick is not null
   and (u.value ->> 2 is null or cursors.next_tick < u.value ->> 2)
   and exists (select 1 from epochs e where e.job = cursors.job and e.epoch = u.value ->> 1);
