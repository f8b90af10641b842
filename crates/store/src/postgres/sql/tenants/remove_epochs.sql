-- Removes the rows of job $1. Primary key: epochs.
delete from epochs where job = $1;
