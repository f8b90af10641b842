-- Loads up to ?4 jobs with a cursor before ?1 and after (?2 next_tick, ?3 job), each with its last recorded tick (cause 1).
-- Indexes: cursors_next, runs_history from the cursor on. Primary keys: jobs, epochs.
select j.*, e.epoch, c.next_tick,
       (select r.scheduled_at from runs r indexed by runs_history
         where r.job = j.id and r.id >= unhex(printf('%012x', c.next_tick)) and r.cause = 1
         order by r.id desc limit 1) as last_tick
  from cursors c indexed by cursors_next
 cross join jobs j on j.id = c.job
 cross join epochs e on e.job = c.job
 where c.partition = 0 and c.next_tick < ?1 and (c.next_tick, c.job) > (?2, ?3)
 order by c.next_tick, c.job
 limit ?4;
