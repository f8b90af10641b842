-- Jobs with a cursor before ?1, from (?2, ?3) on, ?4 of them, and their epochs. Index: cursors_next; key: epochs.
select c.job, e.epoch, c.next_tick
  from cursors c indexed by cursors_next
 cross join epochs e on e.job = c.job
 where c.partition = 0 and c.next_tick < ?1 and (c.next_tick, c.job) > (?2, ?3)
 order by c.next_tick, c.job
 limit ?4;
