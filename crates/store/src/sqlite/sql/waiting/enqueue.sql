-- Adds runs to waiting at time ?2, with the values of their rows, in the queue of their job if it has one.
-- Primary keys: runs, epochs, worker_claims, counters.
-- ?1 JSON array of [run, priority, lead (milliseconds that the priority is worth in a queue), lead of a late run, key].
-- rank = the instant since which the run waits, minus the lead. A late run that was never attempted waits since ?2.
insert into waiting (run, job, tenant, partition, priority, due_at, late, force, attempts, queue, rank, key, lot)
select r.id, r.job, r.tenant, 0, q.value ->> 1, r.due_at, r.late, r.force, r.attempt, e.queue,
       iif(e.queue is null, null,
           iif(r.late = 1 and r.attempt = 0, ?2 - (q.value ->> 3), r.due_at - (q.value ->> 2))),
       coalesce(q.value ->> 4, (select c.key from worker_claims c where c.run = r.id)),
       (select value from counters where name = 'lot')
  from json_each(?1) as q
 cross join runs r on r.id = unhex(q.value ->> 0)
 cross join epochs e on e.job = r.job;
