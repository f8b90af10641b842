-- Reads up to ?1 rows of jobs after id ?2, for a move. Primary key: jobs.
select id, tenant, name, version, created_at, created_by, updated_at, paused_at, pause_note, deleted_at, spec
  from jobs
 where id > ?2
 order by id
 limit ?1;
