-- Lists up to $3 queues of tenant $1 from name $2 on: queues of jobs, and queues with limits. Counts runs at $4, at most $5 each.
-- Indexes: epochs_queue (probed once per queue, each from the queue before), waiting_queue_due, worker_claims_queue.
-- Primary keys: queues, queue_asks.
with recursive used as (
    (select queue from epochs where tenant = $1 and queue >= $2 order by queue limit 1)
     union all
    select (select e.queue from epochs e where e.tenant = $1 and e.queue > u.queue order by e.queue limit 1)
      from used u
     where u.queue is not null
), named as (
    (select queue as name from used where queue is not null limit $3)
     union
    (select name from queues where tenant = $1 and name >= $2 order by name limit $3)
)
select n.name, l.concurrency, l.rate_count, l.rate_ms,
       (select count(*) from (select 1 from waiting w where w.tenant = $1 and w.queue = n.name and w.due_at <= $4 limit $5) d) as due,
       (select count(*) from (select 1 from waiting w where w.tenant = $1 and w.queue = n.name and w.due_at > $4 limit $5) d) as later,
       (select min(w.due_at) from waiting w where w.tenant = $1 and w.queue = n.name) as oldest,
       (select count(*) from worker_claims c where c.tenant = $1 and c.queue = n.name) as claimed,
       (select a.asked_at from queue_asks a where a.tenant = $1 and a.queue = n.name) as asked_at
  from named n
  left join queues l on l.tenant = $1 and l.name = n.name
 order by n.name
 limit $3;
