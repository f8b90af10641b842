-- Raises the epoch of job $1 at time $2. Primary key: epochs. The caller has locked the row.
-- The microseconds of $2 put it above every epoch that a lost database issued: two different edits never share an epoch.
update epochs
   set epoch = greatest(epoch + 1, $2::bigint * 1000), seq = greatest(seq + 2, $2::bigint * 2097152 + (nextval('changes_seq') % 1048576) * 2)
 where job = $1
returning epoch;
