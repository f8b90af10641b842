-- Lists up to ?4 jobs with a cursor before ?1 and after (?2 next_tick, ?3 job), with their epochs.
-- Index: cursors_next. Primary key: epochs.
select c.job, e.epoch, c.next_tick
  from cursors c indexed by cursors_next
 cross join epochs e on e.job = c.job
 where c.partition = 0 and c.next_tick < ?1 and (c.next_tick, c.job) > (?2, ?3)
 order by c.next_tick, c.job
 limit ?4;
