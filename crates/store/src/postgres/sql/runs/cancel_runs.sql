-- Cancels (state 4), at time $2, those of the runs $1 that wait or are claimed (states 0, 1), and raises their fences.
-- Primary key: runs.
update runs set state = 4, finished_at = $2, fence = greatest(fence + 1, $2::bigint * 1000), incarnation = null
 where id = any($1) and state in (0, 1);
