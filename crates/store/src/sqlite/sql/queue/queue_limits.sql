-- Reads the limits of queue ?2 of tenant ?1. Primary key: queues.
select concurrency, rate_count, rate_ms, spent_until from queues where tenant = ?1 and name = ?2;
