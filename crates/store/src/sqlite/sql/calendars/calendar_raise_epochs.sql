-- Raises the epochs of the jobs ?1 at time ?3, with change numbers from ?2 + 1 on. Primary key: epochs.
-- The microseconds of ?3 put each epoch above every epoch of a lost file: two different edits never share an epoch.
update epochs set epoch = max(epoch + 1, ?3 * 1000), seq = ?2 + 1 + asked.key
  from json_each(?1) as asked
 where epochs.job = unhex(asked.value);
