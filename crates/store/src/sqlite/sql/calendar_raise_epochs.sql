-- Raises the epochs of the jobs in ?1, as the change numbers after ?2. Key: epochs.
update epochs set epoch = epoch + 1, seq = ?2 + 1 + asked.key
  from json_each(?1) as asked
 where epochs.job = unhex(asked.value);
