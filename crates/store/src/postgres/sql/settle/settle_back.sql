-- Returns claimed runs to waiting (state 0), due no earlier than their tick; without due_at, due as before.
-- Primary keys: the day's table, epochs, waiting, worker_claims. Arrays: $1 run, $2 due_at, $3 unspent (attempts to give back),
-- $4 lost, $5 error, $6 priority, $7 lead (milliseconds that the priority is worth in a queue), $8 lead of a late run. $9 now.
-- A late run that was never attempted waits since $9. The caller has locked the runs.
-- Partition and queue are those that the job has now: a job does not move while one of its runs is locked.
-- `any (array[...])` leaves the planner no way but the key.
with back as (
    update runs_of_the_day r
       set state = 0, due_at = case when s.due_at is null then r.due_at else greatest(s.due_at, r.scheduled_at) end,
           attempt = r.attempt - s.unspent, lost = r.lost + s.lost,
           error = s.error, node = null, worker = null, incarnation = null, started_at = null
      from unnest($1::uuid[], $2::bigint[], $3::integer[], $4::integer[], $5::text[], $6::smallint[],
                  $7::bigint[], $8::bigint[]) as s (id, due_at, unspent, lost, error, priority, lead, late_lead)
     where r.id = any (array[s.id])
    returning r.id, r.job, r.tenant, s.priority, r.due_at, r.late, r.force, r.attempt,
              case when r.late and r.attempt = 0 then $9 - s.late_lead else r.due_at - s.lead end as rank
)
insert into waiting (run, job, tenant, partition, priority, due_at, late, force, attempts, queue, rank, key)
select b.id, b.job, b.tenant, (select e.partition from epochs e where e.job = b.job), b.priority, b.due_at, b.late, b.force,
       b.attempt, q.queue, case when q.queue is not null then b.rank end,
       (select c.key from worker_claims c where c.run = b.id)
  from back b
 cross join lateral (select (select e.queue from epochs e where e.job = b.job) as queue) q;
