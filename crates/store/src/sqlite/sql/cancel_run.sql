-- Cancels run ?1 at ?2; its fence rises. Key: runs.
update runs set state = 4, finished_at = ?2, fence = max(fence + 1, ?2 * 1000), incarnation = null
 where id = ?1 and state in (0, 1);
