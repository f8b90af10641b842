-- Up to ?2 jobs of which workers hold a run although a newer one waits in a queue and is due at ?1. Indexes:
-- worker_claims_previous, waiting_job.
select distinct c.job
  from worker_claims c indexed by worker_claims_previous
 where c.previous = 1
   and exists (select 1 from waiting w indexed by waiting_job
                where w.job = c.job and w.queue is not null and w.run > c.run and w.due_at <= ?1 and w.force = 0)
 limit ?2;
