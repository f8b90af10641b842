-- What queue $2 of tenant $1 is allowed, held: claims of a limited queue take turns. Key: queues.
select concurrency, rate_count, rate_ms, spent_until from queues where tenant = $1 and name = $2 for no key update;
