-- Sets the limits of queue $2 of tenant $1: $3 concurrent runs, and $4 claims in each $5 milliseconds. Primary key: queues.
-- A changed rate starts unspent.
insert into queues as q (tenant, name, concurrency, rate_count, rate_ms) values ($1, $2, $3, $4, $5)
on conflict (tenant, name) do update
   set concurrency = excluded.concurrency, rate_count = excluded.rate_count, rate_ms = excluded.rate_ms,
       spent_until = case when q.rate_count is not distinct from excluded.rate_count
                           and q.rate_ms is not distinct from excluded.rate_ms then q.spent_until else 0 end;
