-- Holds job $1 against edits and other requests; its ticks go on. Key: epochs.
select epoch from epochs where job = $1 for no key update;
