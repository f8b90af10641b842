-- Holds the epoch of job $1: nothing is recorded for it until this ends. Waits at its gate first, where no claim of workers
-- passes any more; there are 64 of them, so that no statement has many locks. Key: epochs.
with gate as materialized (select pg_advisory_xact_lock(8640, hashtext($1::uuid::text) & 63))
select e.epoch from gate cross join epochs e where e.job = $1 for update of e;
