-- Inserts the last ticks [id, tick, due_at, state, late, reason] of the definition that an edit of job $7 ends, or its lost
-- ones, at $9, under its lock; $12 is its queue, $13 and $14 what its priority is worth there on time and late, $15 its key.
-- A row that exists stays. Returns the ids that were inserted. Keys: runs, waiting.
with recorded as (
    insert into runs (id, tenant, job, cause, scheduled_at, due_at, state, late, force, attempt, lost, fence, finished_at,
                      skip_reason)
    select t.id, $8, $7, 1, t.tick, t.due_at, t.state, t.late, false, 0, 0, 0, case when t.state = 5 then $9::bigint end,
           t.reason
      from unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::smallint[], $5::boolean[], $6::smallint[])
               as t (id, tick, due_at, state, late, reason)
    on conflict (id) do nothing
    returning id, due_at, state, late
), queued as (
    insert into waiting (run, job, tenant, partition, priority, due_at, late, force, attempts, queue, rank, key)
    select id, $7, $8, $10, $11, due_at, late, false, 0, $12,
           case when $12::text is not null then case when late then $9::bigint - $14::bigint else due_at - $13::bigint end end, $15
      from recorded
     where state = 0
)
select id from recorded;
