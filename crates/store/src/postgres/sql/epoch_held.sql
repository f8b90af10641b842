-- Holds the epoch of job $1: nothing is recorded for it until this ends. Key: epochs.
select epoch from epochs where job = $1 for update;
