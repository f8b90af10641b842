-- Inserts ticks (cause 1) of job $7: the last ticks of a definition that an edit ends, or lost ticks.
-- Primary keys: runs, waiting. Arrays: $1 id, $2 tick, $3 due_at, $4 state (0 waiting, 5 skipped), $5 late, $6 skip reason.
-- $8 tenant, $9 time, $10 partition, $11 priority, $12 queue, $13 and $14 lead of the priority in milliseconds, on time and late,
-- $15 key. The caller has locked the job. A row that exists stays. Waiting runs are queued. Returns the inserted ids.
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
