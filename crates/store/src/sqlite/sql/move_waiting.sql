-- Up to ?1 rows behind the key ?2. Key: waiting.
select run, job, tenant, priority, due_at, late, force, attempts, queue, rank, key
  from waiting
 where run > ?2
 order by run
 limit ?1;
