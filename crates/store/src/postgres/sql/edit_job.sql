-- Writes a job as it is from now on. Key: jobs.
update jobs set name = $2, version = $3, spec = $4, updated_at = $5, paused_at = $6, pause_note = $7, deleted_at = $8,
                enabled = $9, target = $10, labels = $11::jsonb, search = $12
 where id = $1;
