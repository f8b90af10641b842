-- Lists up to ?2 jobs under cancel_previous that have a run claimed by a worker and a newer run due at ?1 in a queue.
-- Indexes: worker_claims_previous, waiting_job. A forced run supersedes no other.
select distinct c.job
  from worker_claims c indexed by worker_claims_previous
 where c.previous = 1
   and exists (select 1 from waiting w indexed by waiting_job
                where w.job = c.job and w.queue is not null and w.run > c.run and w.due_at <= ?1 and w.force = 0)
 limit ?2;
