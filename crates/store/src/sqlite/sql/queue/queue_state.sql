-- Reads queue ?2 of tenant ?1: its limits, how many runs workers have claimed, and when a worker last asked for runs.
-- Primary keys: queues, queue_asks. Index: worker_claims_queue.
select l.concurrency, l.rate_count, l.rate_ms, l.spent_until, a.asked_at, a.worker,
       (select count(*) from worker_claims k indexed by worker_claims_queue where k.tenant = ?1 and k.queue = ?2) as claimed
  from (select 1 as one) o
  left join queues l on l.tenant = ?1 and l.name = ?2
  left join queue_asks a on a.tenant = ?1 and a.queue = ?2;
