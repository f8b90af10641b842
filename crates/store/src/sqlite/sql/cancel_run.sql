-- Cancels (state 4) run ?1 at time ?2 if it waits or is claimed (states 0, 1), and raises its fence. Primary key: runs.
update runs set state = 4, finished_at = ?2, fence = max(fence + 1, ?2 * 1000), incarnation = null
 where id = ?1 and state in (0, 1);
