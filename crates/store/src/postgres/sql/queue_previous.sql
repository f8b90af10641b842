-- Up to $2 jobs of which workers hold a run although a newer one waits in a queue and is due at $1. Indexes:
-- worker_claims_previous, waiting_job.
select distinct c.job
  from worker_claims c
 where c.previous
   and exists (select 1 from waiting w
                where w.job = c.job and w.queue is not null and w.run > c.run and w.due_at <= $1 and not w.force)
 limit $2;
