-- Cancels (state 4), at time $2, the claimed runs (state 1) of job $1 with ids from $3 on, and raises their fences.
-- Index: runs_history. $3 is the lowest open_from of all leases; open_claims lists the older claims.
update runs set state = 4, finished_at = $2, fence = greatest(fence + 1, $2::bigint * 1000), incarnation = null
 where job = $1 and id >= $3 and state = 1
returning id;
