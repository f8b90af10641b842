-- Inserts moved rows of queue_asks. Primary key: queue_asks.
-- Arrays: $1 tenant, $2 queue, $3 asked_at, $4 worker.
insert into queue_asks (tenant, queue, asked_at, worker)
select n.tenant, n.queue, n.asked_at, n.worker
  from unnest($1::integer[], $2::text[], $3::bigint[], $4::text[]) as n (tenant, queue, asked_at, worker);
