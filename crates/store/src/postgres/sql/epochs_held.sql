-- Holds the epochs of the jobs in $1, in order: nothing is recorded for them until this ends. Key: epochs.
select job from epochs where job = any($1) order by job for update;
