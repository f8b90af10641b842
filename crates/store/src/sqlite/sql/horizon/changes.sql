-- Lists up to ?2 jobs with a change number above ?1, in order of change. Index: epochs_seq.
select e.job, e.epoch, e.seq, c.next_tick
  from epochs e
  left join cursors c on c.job = e.job
 where e.seq > ?1
 order by e.seq
 limit ?2;
