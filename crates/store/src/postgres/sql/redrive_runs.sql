-- Makes, at $3, the runs $2 in the places of the failed ones $1, late and with their payloads, and puts those that were not
-- there among the waiting of partition $4 under priority $5, in queue $6 at
-- rank $7 with the keys $8. Keys: runs, waiting.
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
