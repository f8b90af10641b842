-- Locks the jobs $1 against edits and other requests, in ascending order; their ticks continue. Primary key: epochs.
select job from epochs where job = any($1) order by job for no key update;
