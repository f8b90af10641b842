-- Holds the epoch of job $1 while it is $2. Key: epochs.
select tenant from epochs where job = $1 and epoch = $2 for update;
