-- Locks job $1 against edits, requests and other backlog workers; its ticks continue. Primary key: epochs.
-- Returns no row if another session has locked the job (SKIP LOCKED).
select queue, partition from epochs where job = $1 for no key update skip locked;
