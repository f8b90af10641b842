-- Lists up to $2 jobs under cancel_previous that have a run claimed by a worker and a newer run due at $1 in a queue.
-- Indexes: worker_claims_previous, waiting_job. A forced run supersedes no other.
select distinct c.job
  from worker_claims c
 where c.previous
   and exists (select 1 from waiting w
                where w.job = c.job and w.queue is not null and w.run > c.run and w.due_at <= $1 and not w.force)
 limit $2;
