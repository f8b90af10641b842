-- Jobs of the partitions $3 changed after $1, and those that moved away from there last, in the order of their changes; without what
-- was written by transactions before $4, which were over when somebody looked (a number that is still to come says nothing). One
-- that moved twice within a poll is not told to where it stood first: that node learns by a statement that is refused.
-- Index: epochs_seq.
-- `& 255`: a damaged partition number must not fail the statement.
select e.job, e.epoch, e.seq, c.next_tick
  from epochs e
  left join cursors c on c.job = e.job
 where e.seq > $1 and (get_bit($3::bytea, e.partition & 255) = 1 or get_bit($3::bytea, e.moved_from & 255) = 1)
   and (coalesce(age($4::text::xid), -1) < 0 or age(e.xmin) <= age($4::text::xid))
 order by e.seq
 limit $2;
