-- Raises the epochs of the jobs in $1, which are held, at $2. Key: epochs.
-- Epochs rise past every one made before $2 on a database since lost, as fences do: two different edits never share an epoch.
update epochs
   set epoch = greatest(epoch + 1, $2::bigint * 1000), seq = greatest(seq + 2, $2::bigint * 2097152 + (nextval('changes_seq') % 1048576) * 2)
 where job = any($1);
