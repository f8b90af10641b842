-- Makes the runs $1 of the ticks $2 for job $4 of tenant $3, late, due at $5, with the payload $6, and puts those that were not
-- there among the waiting of partition $7 under priority $8, in queue $9 at rank $10 with the key $11, as runs of backfill $12.
-- Keys: runs, waiting, backfill_runs.
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
insert into backfill_runs (run, backfill) select id, $12 from made;
