-- Claims (state 0 to 1) the runs ?1 for worker ?3 at ?2. Primary key: runs.
-- The nil incarnation marks the claim of a worker, not of a node.
update runs set state = 1, fence = max(fence + 1, ?2 * 1000), attempt = attempt + 1, node = null, worker = ?3,
                incarnation = zeroblob(16), started_at = ?2, error = null
  from json_each(?1) as asked
 where runs.id = unhex(asked.value) and runs.state = 0
returning id, job, tenant, cause, scheduled_at, fence, attempt, lost, payload;
