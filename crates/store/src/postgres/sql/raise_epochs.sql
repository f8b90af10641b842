-- Raises the epochs of the jobs in $1, which are held, at $2. Key: epochs.
update epochs
   set epoch = epoch + 1, seq = greatest(seq + 2, $2::bigint * 2097152 + (nextval('changes_seq') % 1048576) * 2)
 where job = any($1);
