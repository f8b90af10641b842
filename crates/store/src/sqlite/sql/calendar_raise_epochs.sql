-- Raises the epochs of the jobs in ?1, as the change numbers after ?2, past every epoch made before ?3 on a file since lost.
-- Key: epochs.
update epochs set epoch = max(epoch + 1, ?3 * 1000), seq = ?2 + 1 + asked.key
  from json_each(?1) as asked
 where epochs.job = unhex(asked.value);
