-- Cancels, at $2, those of the runs $1 that are open; their fences rise. Key: runs.
update runs set state = 4, finished_at = $2, fence = greatest(fence + 1, $2::bigint * 1000), incarnation = null
 where id = any($1) and state in (0, 1);
