-- Writes the new definition of job $1. Primary key: jobs.
-- $2 name, $3 version, $4 spec, $5 updated_at, $6 paused_at, $7 pause_note, $8 deleted_at, $9 enabled, $10 target, $11 labels,
-- $12 search.
update jobs set name = $2, version = $3, spec = $4, updated_at = $5, paused_at = $6, pause_note = $7, deleted_at = $8,
                enabled = $9, target = $10, labels = $11::jsonb, search = $12
 where id = $1;
