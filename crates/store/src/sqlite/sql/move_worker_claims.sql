-- Up to ?1 rows behind the key ?2. Key: worker_claims.
select run, job, tenant, queue, worker, fence, until, timeout_at, key, log, previous
  from worker_claims
 where run > ?2
 order by run
 limit ?1;
