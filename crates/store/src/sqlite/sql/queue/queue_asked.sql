-- Notes that worker ?4 asked for runs of queue ?2 of tenant ?1 at ?3. Primary key: queue_asks.
insert into queue_asks (tenant, queue, asked_at, worker) values (?1, ?2, ?3, ?4)
on conflict (tenant, queue) do update
   set asked_at = max(queue_asks.asked_at, excluded.asked_at), worker = excluded.worker;
