-- Reads up to ?1 rows of runs after id ?2, for a move. Primary key: runs.
select id, tenant, cause, state, job, scheduled_at, due_at, fence, started_at, finished_at, attempt, lost, skip_reason,
       late, force, incarnation, node, error, output, payload, worker, flow
  from runs
 where id > ?2
 order by id
 limit ?1;
