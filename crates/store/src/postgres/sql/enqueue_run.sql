-- Puts a run that somebody asked for among the waiting. Key: waiting.
insert into waiting (run, job, tenant, partition, priority, due_at, late, force, attempts, queue, rank, key)
values ($1, $2, $3, $4, $5, $6, false, $7, 0, $8, $9, $10);
