-- Claims those of the runs in ?1 that wait and are due at ?2. Keys: runs, waiting.
update runs set state = 1, fence = max(fence + 1, ?2 * 1000), attempt = attempt + 1, node = ?3, incarnation = ?4,
                started_at = ?2, error = null
  from json_each(?1) as asked
 where runs.id = unhex(asked.value)
   and runs.state = 0
   and exists (select 1 from waiting w where w.run = runs.id and w.queue is null and w.due_at <= ?2)
returning id, job, tenant, cause, scheduled_at, fence, attempt, lost, payload;
