-- Notes that worker ?4 asked for runs of queue ?2 of tenant ?1 at ?3, if a job uses the queue or the queue has limits: workers may
-- ask for any name. Index: epochs_queue. Primary keys: queue_asks, queues.
insert into queue_asks (tenant, queue, asked_at, worker)
select ?1, ?2, ?3, ?4
 where exists (select 1 from epochs indexed by epochs_queue where tenant = ?1 and queue = ?2 and queue is not null)
    or exists (select 1 from queues where tenant = ?1 and name = ?2)
on conflict (tenant, queue) do update
   set asked_at = max(queue_asks.asked_at, excluded.asked_at), worker = excluded.worker;
