-- Raises the epoch of job ?1 at time ?3, as change number ?2. Primary key: epochs.
-- The microseconds of ?3 put it above every epoch that a lost file issued: two different edits never share an epoch.
update epochs set epoch = max(epoch + 1, ?3 * 1000), seq = ?2 where job = ?1 returning epoch;
