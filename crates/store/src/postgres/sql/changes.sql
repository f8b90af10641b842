-- Jobs of the partitions $3 changed after $1, in the order of their changes. Index: epochs_seq.
select e.job, e.epoch, e.seq, c.next_tick
  from epochs e
  left join cursors c on c.job = e.job
 where e.seq > $1 and e.partition = any($3)
 order by e.seq
 limit $2;
