-- Sets the limits of queue ?2 of tenant ?1: ?3 concurrent runs, and ?4 claims in each ?5 milliseconds. Primary key: queues.
-- A changed rate starts unspent.
insert into queues (tenant, name, concurrency, rate_count, rate_ms) values (?1, ?2, ?3, ?4, ?5)
on conflict (tenant, name) do update
   set concurrency = excluded.concurrency,
       spent_until = iif(rate_count is excluded.rate_count and rate_ms is excluded.rate_ms, spent_until, 0),
       rate_count = excluded.rate_count, rate_ms = excluded.rate_ms;
