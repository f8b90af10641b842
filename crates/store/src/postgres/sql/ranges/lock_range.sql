-- Locks the epoch of job $1 if it is $2. Primary key: epochs.
select tenant from epochs where job = $1 and epoch = $2 for update;
