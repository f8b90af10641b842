-- Locks job $1 against edits, requests and others who work at its backlog; its ticks go on. Gives nothing where it is locked. Key: epochs.
select queue, partition from epochs where job = $1 for no key update skip locked;
