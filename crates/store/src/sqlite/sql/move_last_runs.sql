-- Up to ?1 runs behind the id ?2 and before ?3. Key: runs.
select id, tenant, cause, state, job, scheduled_at, due_at, fence, started_at, finished_at, attempt, lost, skip_reason,
       late, force, incarnation, node, error, output, payload, worker, flow
  from runs
 where id > ?2 and id < ?3
 order by id
 limit ?1;
