-- Cancels, at ?2, the runs of job ?1 that wait. Index: waiting_job.
update runs set state = 4, finished_at = ?2, fence = max(fence + 1, ?2 * 1000)
 where id in (select run from waiting where job = ?1) and state = 0
returning id;
