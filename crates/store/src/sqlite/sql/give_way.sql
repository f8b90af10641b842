-- Cancels, at ?2, those of the runs [id, error] of ?1 that are open; their fences rise. Key: runs.
update runs set state = 4, finished_at = ?2, fence = max(fence + 1, ?2 * 1000), incarnation = null, error = g.value ->> 1
  from json_each(?1) as g
 where runs.id = unhex(g.value ->> 0) and runs.state in (0, 1)
returning id;
