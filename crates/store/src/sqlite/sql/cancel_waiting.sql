-- Cancels (state 4), at time ?2, the waiting runs (state 0) of job ?1, and raises their fences. Index: waiting_job.
-- Primary key: runs.
update runs set state = 4, finished_at = ?2, fence = max(fence + 1, ?2 * 1000)
 where id in (select run from waiting where job = ?1) and state = 0
returning id;
