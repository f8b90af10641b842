-- Jobs of the partitions $3 changed after $1, and those that moved away from there last, in the order of their changes. One
-- that moved twice within a poll is not told to where it stood first: that node learns by a statement that is refused.
-- Index: epochs_seq.
select e.job, e.epoch, e.seq, c.next_tick
  from epochs e
  left join cursors c on c.job = e.job
 where e.seq > $1 and (get_bit($3::bytea, e.partition) = 1 or get_bit($3::bytea, e.moved_from) = 1)
 order by e.seq
 limit $2;
