-- Brings queues over. Key: queues.
insert into queues (tenant, name, concurrency, rate_count, rate_ms, spent_until)
select n.tenant, n.name, n.concurrency, n.rate_count, n.rate_ms, n.spent_until
  from unnest($1::integer[], $2::text[], $3::integer[], $4::integer[], $5::bigint[], $6::bigint[])
           as n (tenant, name, concurrency, rate_count, rate_ms, spent_until);
