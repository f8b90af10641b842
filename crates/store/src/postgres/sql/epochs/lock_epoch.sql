-- Locks the epoch of job $1 for an edit: no tick of the job is recorded until this transaction ends. Primary key: epochs.
-- First locks the job's gate, an advisory lock that claims of workers take shared. Without the gate, a stream of claims that
-- share-lock the row would starve this lock. The 64 gates are shared by hash, so that no statement needs many locks.
with gate as materialized (select pg_advisory_xact_lock(8640, hashtext($1::uuid::text) & 63))
select e.epoch from gate cross join epochs e where e.job = $1 for update of e;
