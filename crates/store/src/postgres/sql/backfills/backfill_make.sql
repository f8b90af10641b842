-- Inserts runs of backfill $12 (cause 3) as waiting (state 0) and late, and queues them.
-- Primary keys: runs, waiting, backfill_runs. Arrays: $1 run, $2 tick;
-- $3 tenant, $4 job, $5 due_at, $6 payload, $7 partition, $8 priority, $9 queue, $10 rank, $11 key.
-- A run that exists stays, and is not queued again.
with made as (
    insert into runs (id, tenant, job, cause, scheduled_at, due_at, state, late, force, attempt, lost, fence, payload)
    select m.id, $3, $4, 3, m.tick, $5, 0, true, false, 0, 0, 0, $6
      from unnest($1::uuid[], $2::bigint[]) as m (id, tick)
    on conflict (id) do nothing
    returning id
), queued as (
    insert into waiting (run, job, tenant, partition, priority, due_at, late, force, attempts, queue, rank, key)
    select id, $4, $3, $7, $8, $5, true, false, 0, $9, $10, $11
      from made
)
insert into backfill_runs (run, backfill, tenant) select id, $12, $3 from made;
