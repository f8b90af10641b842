-- Cancels, at ?2, those of the runs of ?1 that are open; their fences rise. Key: runs.
update runs set state = 4, finished_at = ?2, fence = max(fence + 1, ?2 * 1000), incarnation = null
 where id in (select unhex(value) from json_each(?1)) and state in (0, 1)
returning id, job;
