-- Raises the epoch of job ?1 as change number ?2. Key: epochs.
update epochs set epoch = epoch + 1, seq = ?2 where job = ?1 returning epoch;
