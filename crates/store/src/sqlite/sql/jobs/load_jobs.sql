-- Reads the jobs ?1, deleted ones too, in the order of the array, each with its last recorded tick (cause 1).
-- Primary keys: jobs, epochs, cursors. Index: runs_history, from the cursor on.
select j.*, e.epoch, c.next_tick,
       (select r.scheduled_at from runs r indexed by runs_history
         where r.job = j.id and r.id >= unhex(printf('%012x', c.next_tick)) and r.cause = 1
         order by r.id desc limit 1) as last_tick
  from json_each(?1) as asked
 cross join jobs j on j.id = unhex(asked.value)
 cross join epochs e on e.job = j.id
 cross join cursors c on c.job = j.id
 order by asked.key;
