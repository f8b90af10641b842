-- Lists up to $2 jobs with a change number above $1, in the partitions $3 (a bitmap) or last moved out of them, in order of
-- change. Index: epochs_seq.
-- Leaves out rows written by transactions before $4: they were committed at an earlier poll, which reported them.
-- $4 is ignored if it is null or not yet assigned. A job that moved twice between two polls is not reported to its first
-- partition; the owner of that partition notices when a statement for the job is refused.
-- `& 255`: a damaged partition number must not fail the statement.
select e.job, e.epoch, e.seq, c.next_tick
  from epochs e
  left join cursors c on c.job = e.job
 where e.seq > $1 and (get_bit($3::bytea, e.partition & 255) = 1 or get_bit($3::bytea, e.moved_from & 255) = 1)
   and (coalesce(age($4::text::xid), -1) < 0 or age(e.xmin) <= age($4::text::xid))
 order by e.seq
 limit $2;
