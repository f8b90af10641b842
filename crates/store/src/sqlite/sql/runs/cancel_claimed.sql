-- Cancels (state 4), at time ?2, the claimed runs (state 1) of job ?1, and raises their fences.
-- Index: runs_history, from the lowest open_from of all leases on; open_claims lists the older claims.
update runs indexed by runs_history
   set state = 4, finished_at = ?2, fence = max(fence + 1, ?2 * 1000), incarnation = null
 where job = ?1 and id >= (select min(open_from) from leases) and state = 1
returning id;
