-- Reads up to ?1 rows of queue_asks after (?2 tenant, ?3 queue), for a move. Primary key: queue_asks.
select tenant, queue, asked_at, worker
  from queue_asks
 where (tenant, queue) > (?2, ?3)
 order by tenant, queue
 limit ?1;
