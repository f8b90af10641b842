-- Adds a requested run to waiting. Primary key: waiting.
-- $1 run, $2 job, $3 tenant, $4 partition, $5 priority, $6 due_at, $7 force, $8 queue, $9 rank, $10 key.
insert into waiting (run, job, tenant, partition, priority, due_at, late, force, attempts, queue, rank, key)
values ($1, $2, $3, $4, $5, $6, false, $7, 0, $8, $9, $10);
