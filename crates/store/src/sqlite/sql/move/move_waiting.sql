-- Reads up to ?1 rows of waiting after run ?2, for a move. Primary key: waiting.
select run, job, tenant, priority, due_at, late, force, attempts, queue, rank, key
  from waiting
 where run > ?2
 order by run
 limit ?1;
