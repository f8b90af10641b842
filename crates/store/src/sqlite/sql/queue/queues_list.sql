-- Lists up to ?3 queues of tenant ?1 from name ?2 on: queues of jobs, and queues with limits. Counts runs at ?4, at most ?5 each.
-- Indexes: epochs_queue (probed once per queue, each from the queue before), waiting_queue_due, worker_claims_queue.
-- Primary keys: queues, queue_asks.
with recursive used (queue) as (
    select min(queue) from epochs indexed by epochs_queue where tenant = ?1 and queue is not null and queue >= ?2
     union all
    select (select min(e.queue) from epochs e indexed by epochs_queue
             where e.tenant = ?1 and e.queue is not null and e.queue > used.queue)
      from used
     where used.queue is not null
     limit ?3
), named (name) as (
    select queue from used where queue is not null
     union
    select name from queues where tenant = ?1 and name >= ?2
)
select named.name, l.concurrency, l.rate_count, l.rate_ms,
       (select count(*) from (select 1 from waiting w where w.tenant = ?1 and w.queue = named.name and w.due_at <= ?4 limit ?5)) as due,
       (select count(*) from (select 1 from waiting w where w.tenant = ?1 and w.queue = named.name and w.due_at > ?4 limit ?5)) as later,
       (select min(w.due_at) from waiting w where w.tenant = ?1 and w.queue = named.name) as oldest,
       (select count(*) from worker_claims c where c.tenant = ?1 and c.queue = named.name) as claimed,
       (select a.asked_at from queue_asks a where a.tenant = ?1 and a.queue = named.name) as asked_at
  from named
  left join queues l on l.tenant = ?1 and l.name = named.name
 order by named.name
 limit ?3;
