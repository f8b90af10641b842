-- Reads up to ?1 runs after id ?2 and before id ?3, for a move. Primary key: runs.
select id, tenant, cause, state, job, scheduled_at, due_at, fence, started_at, finished_at, attempt, lost, skip_reason,
       late, force, incarnation, node, error, output, payload, worker, flow
  from runs
 where id > ?2 and id < ?3
 order by id
 limit ?1;
