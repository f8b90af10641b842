-- Up to ?1 rows behind the key (?2, ?3). Key: queues.
select tenant, name, concurrency, rate_count, rate_ms, spent_until
  from queues
 where (tenant, name) > (?2, ?3)
 order by tenant, name
 limit ?1;
