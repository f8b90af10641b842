-- Raises the epoch of job ?1 as change number ?2, past every epoch made before ?3 on a file since lost. Key: epochs.
update epochs set epoch = max(epoch + 1, ?3 * 1000), seq = ?2 where job = ?1 returning epoch;
