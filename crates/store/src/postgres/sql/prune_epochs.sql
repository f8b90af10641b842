-- Removes the rows of the jobs in $1. Key: epochs.
delete from epochs where job = any($1);
