-- As record.sql, for a batch in which some runs wait (state 0; 1 claimed, 5 skipped). These are also inserted into waiting.
-- More arrays: $12 priority, $13 lead (milliseconds that the priority is worth in a queue), $14 key (empty: none).
-- The others as in record.sql: $1 incarnation, $2 node, $3 fence, $4 id, $5 job, $6 epoch, $7 tick, $8 due_at, $9 state,
-- $10 late, $11 reason. Reading a text by position walks through the array;
-- for a thousand keys that costs less than unnesting all columns.
with lease as materialized (
    select until, open_from from leases where incarnation = $1 and node = $2 and fence = $3 and not ended for share
), clock as materialized (
    select everytick_now() as now, until, open_from from lease
), locked as materialized (
    select p.place::integer as place, ($9::smallint[])[p.place] as state, e.tenant, e.partition, e.queue
      from unnest($5::uuid[]) with ordinality as p (job, place)
     cross join lateral (
            select e.tenant, e.partition, e.queue
              from epochs e
             where e.job = p.job and e.epoch = ($6::bigint[])[p.place]
               for key share of e skip locked) e
     where exists (select 1 from clock k where k.until > k.now) and ($7::bigint[])[p.place] <= (select k.now from clock k)
       and coalesce((select c.next_tick from cursors c where c.job = p.job) <= ($7::bigint[])[p.place], false)
), recorded as (
    insert into runs (id, tenant, job, cause, scheduled_at, due_at, state, late, force, attempt, lost, fence,
                      node, incarnation, started_at, finished_at, skip_reason)
    select ($4::uuid[])[h.place], h.tenant, ($5::uuid[])[h.place], 1, ($7::bigint[])[h.place],
           coalesce(($8::bigint[])[h.place], ($7::bigint[])[h.place]), h.state, coalesce(($10::boolean[])[h.place], false), false,
           (h.state = 1)::integer, 0, case when h.state = 1 then greatest(1, k.now * 1000) else 0 end,
           case when h.state = 1 then $2 end, case when h.state = 1 then $1 end, case when h.state = 1 then k.now end,
           case when h.state = 5 then k.now end, case when h.state = 5 then ($11::smallint[])[h.place] end
      from locked h
     cross join clock k
), queued as (
    insert into waiting (run, job, tenant, partition, priority, due_at, late, force, attempts, queue, rank, key)
    select ($4::uuid[])[h.place], ($5::uuid[])[h.place], h.tenant, h.partition, ($12::smallint[])[h.place],
           coalesce(($8::bigint[])[h.place], ($7::bigint[])[h.place]), coalesce(($10::boolean[])[h.place], false), false, 0, h.queue,
           case when h.queue is not null
                then case when ($10::boolean[])[h.place] then k.now else coalesce(($8::bigint[])[h.place], ($7::bigint[])[h.place]) end
                     - ($13::bigint[])[h.place] end,
           ($14::text[])[h.place]
      from locked h
     cross join clock k
     where h.state = 0
)
select k.now, k.until, k.open_from, h.count,
       case when h.count < cardinality($4) then array(select ($4::uuid[])[place] from locked) end as ids
  from clock k
 cross join (select count(*) as count from locked) h;
