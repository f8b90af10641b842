-- Removes the epochs of the jobs $1. Primary key: epochs.
delete from epochs where job = any($1);
