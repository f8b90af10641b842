-- Inserts runs of flow $14, tenant $13, scheduled_at $15, at time $16; a run that exists stays. Primary keys: runs, waiting.
-- Arrays: $1 id, $2 job, $3 cause, $4 state (0 waiting, 5 skipped), $5 skip reason, $6 error, $7 payload, $8 partition,
-- $9 priority, $10 queue, $11 rank, $12 key. Waiting runs are queued. Returns the inserted runs.
with children as (
    select * from unnest($1::uuid[], $2::uuid[], $3::smallint[], $4::smallint[], $5::smallint[], $6::text[], $7::text[],
                         $8::smallint[], $9::smallint[], $10::text[], $11::bigint[], $12::text[])
        as c (id, job, cause, state, reason, error, payload, partition, priority, queue, rank, key)
), made as (
    insert into runs (id, tenant, job, cause, scheduled_at, due_at, state, late, force, attempt, lost, fence, finished_at,
                      skip_reason, error, payload, flow)
    select c.id, $13, c.job, c.cause, $15, greatest($16::bigint, $15::bigint), c.state, false, false, 0, 0, 0,
           case when c.state = 5 then $16::bigint end, c.reason, c.error, c.payload, $14
      from children c
    on conflict (id) do nothing
    returning id, due_at, state
), queued as (
    insert into waiting (run, job, tenant, partition, priority, due_at, late, force, attempts, queue, rank, key)
    select c.id, c.job, $13, c.partition, c.priority, m.due_at, false, false, 0, c.queue, c.rank, c.key
      from made m
      join children c on c.id = m.id
     where m.state = 0
)
select id, state from made;
