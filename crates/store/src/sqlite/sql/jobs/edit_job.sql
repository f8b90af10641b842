-- Writes the new definition of job ?1. Primary key: jobs.
-- ?2 name, ?3 version, ?4 spec, ?5 updated_at, ?6 paused_at, ?7 pause_note, ?8 deleted_at.
update jobs set name = ?2, version = ?3, spec = ?4, updated_at = ?5, paused_at = ?6, pause_note = ?7, deleted_at = ?8
 where id = ?1;
