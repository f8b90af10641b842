-- Claims (state 0 to 1) those of the runs ?1 that wait and are due at ?2, for node ?3 and incarnation ?4.
-- Primary keys: runs, waiting. The fence becomes max(old + 1, microseconds of ?2), so it is above every fence that a lost file
-- issued before ?2 (I9). Runs of a marked backlog are left out.
update runs set state = 1, fence = max(fence + 1, ?2 * 1000), attempt = attempt + 1, node = ?3, incarnation = ?4,
                started_at = ?2, error = null
  from json_each(?1) as asked
 where runs.id = unhex(asked.value)
   and runs.state = 0
   and exists (select 1 from waiting w
                where w.run = runs.id and w.queue is null and w.due_at <= ?2
                  and ((select count(*) from backlog_work) = 0
                       or not exists (select 1 from backlog_work b where b.job = w.job and w.lot <= b.up_to)))
returning id, job, tenant, cause, scheduled_at, fence, attempt, lost, payload;
