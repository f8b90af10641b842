-- Cancels, at ?2, the runs of job ?1 that are being worked on. Index: runs_history from the lowest id that a lease has claimed.
update runs indexed by runs_history
   set state = 4, finished_at = ?2, fence = max(fence + 1, ?2 * 1000), incarnation = null
 where job = ?1 and id >= (select min(open_from) from leases) and state = 1
returning id;
