-- Notes that worker $4 asked for runs of queue $2 of tenant $1 at $3, if a job uses the queue or the queue has limits: workers may
-- ask for any name. Index: epochs_queue. Primary keys: queue_asks, queues.
insert into queue_asks (tenant, queue, asked_at, worker)
select $1::integer, $2::text, $3::bigint, $4::text
 where exists (select 1 from epochs where tenant = $1 and queue = $2)
    or exists (select 1 from queues where tenant = $1 and name = $2)
on conflict (tenant, queue) do update
   set asked_at = greatest(queue_asks.asked_at, excluded.asked_at), worker = excluded.worker;
