-- Cancels (state 4), at time ?2, the claimed runs (state 1) of job ?1 that worker_claims or open_claims lists, and raises their
-- fences. Indexes: worker_claims_job, open_claims_job. Primary key: runs.
update runs set state = 4, finished_at = ?2, fence = max(fence + 1, ?2 * 1000), incarnation = null
 where id in (select run from worker_claims indexed by worker_claims_job where job = ?1
               union
              select run from open_claims indexed by open_claims_job where job = ?1)
   and state = 1
returning id;
