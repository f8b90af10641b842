-- Inserts moved queues. Primary key: queues.
-- Arrays: $1 tenant, $2 name, $3 concurrency, $4 rate_count, $5 rate_ms, $6 spent_until (microseconds).
insert into queues (tenant, name, concurrency, rate_count, rate_ms, spent_until)
select n.tenant, n.name, n.concurrency, n.rate_count, n.rate_ms, n.spent_until
  from unnest($1::integer[], $2::text[], $3::integer[], $4::integer[], $5::bigint[], $6::bigint[])
           as n (tenant, name, concurrency, rate_count, rate_ms, spent_until);
