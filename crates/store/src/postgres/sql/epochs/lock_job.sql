-- Locks job $1 against edits and other requests; its ticks continue. Primary key: epochs.
select epoch from epochs where job = $1 for no key update;
