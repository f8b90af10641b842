-- Reads up to ?1 rows of worker_claims after run ?2, for a move. Primary key: worker_claims.
select run, job, tenant, queue, worker, fence, until, timeout_at, key, log, previous
  from worker_claims
 where run > ?2
 order by run
 limit ?1;
