-- Holds the jobs $1, in order, against edits, requests and other claims; their ticks go on. Key: epochs.
select job from epochs where job = any($1) order by job for no key update;
