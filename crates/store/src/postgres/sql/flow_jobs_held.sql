-- Holds the jobs $1 against edits and other requests, in order; their ticks go on. Key: epochs.
select job from epochs where job = any($1) order by job for no key update;
