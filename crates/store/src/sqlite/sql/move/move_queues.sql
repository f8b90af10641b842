-- Reads up to ?1 rows of queues after (?2 tenant, ?3 name), for a move. Primary key: queues.
select tenant, name, concurrency, rate_count, rate_ms, spent_until
  from queues
 where (tenant, name) > (?2, ?3)
 order by tenant, name
 limit ?1;
