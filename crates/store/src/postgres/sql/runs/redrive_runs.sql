-- Inserts, at $3, a new run (cause 2, state 0 waiting, late) for each failed run, with its payload, and queues it.
-- Primary keys: runs, waiting. Arrays: $1 failed run, $2 new run, $8 key. $4 partition, $5 priority, $6 queue, $7 rank.
-- A run that exists stays, and is not queued again.
with made as (
    insert into runs (id, tenant, job, cause, scheduled_at, due_at, state, late, force, attempt, lost, fence, payload)
    select m.id, f.tenant, f.job, 2, f.scheduled_at, greatest($3, f.scheduled_at), 0, true, false, 0, 0, 0, f.payload
      from unnest($1::uuid[], $2::uuid[]) as m (failed, id)
      join runs f on f.id = m.failed
    on conflict (id) do nothing
    returning id, job, tenant, due_at
)
insert into waiting (run, job, tenant, partition, priority, due_at, late, force, attempts, queue, rank, key)
select m.id, m.job, m.tenant, $4, $5, m.due_at, true, false, 0, $6, $7, k.key
  from made m
  join unnest($2::uuid[], $8::text[]) as k (id, key) on k.id = m.id;
