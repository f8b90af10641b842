-- Reads and locks the limits of queue $2 of tenant $1: claims of a limited queue run one at a time. Primary key: queues.
select concurrency, rate_count, rate_ms, spent_until from queues where tenant = $1 and name = $2 for no key update;
