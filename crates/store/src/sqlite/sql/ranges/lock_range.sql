-- Reads the tenant of job ?1 if its epoch is ?2. Primary key: epochs.
select tenant from epochs where job = ?1 and epoch = ?2;
