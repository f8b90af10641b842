-- Cancels, at $2, the runs of job $1 that are being worked on. Index: runs_history from $3, the lowest id that a lease has claimed.
update runs set state = 4, finished_at = $2, fence = greatest(fence + 1, $2::bigint * 1000), incarnation = null
 where job = $1 and id >= $3 and state = 1
returning id;
