-- Records ticks, one of each job, in one statement: holds the lease and sees that it lives and carries the fence $3, holds the
-- epochs of the jobs that still have the one they were planned with (passing over those that an edit holds), and inserts the
-- ticks [id, job, epoch, tick, due_at, state, late, reason] of exactly those jobs that are not after the clock, read after the
-- lease was held, and not below the cursor. No lock but the lease's is waited for. Ticks come in the order of their jobs and
-- are inserted in it. One that is there already fails the statement, so what was held was inserted: says how many, and which
-- when not all. Keys: leases, epochs, cursors.
-- A batch is walked through by the jobs' places, and what else it says is looked up there: a value by its place in an array
-- of fixed width without nulls is found at once, where one more column to unnest is one more table to make. Due times that
-- are the ticks, and reasons and lateness that nothing has, are empty arrays. `lateral` and the select in the guard leave no
-- way but to probe each by its key: joined, all jobs would be read wherever the planner takes them for few.
with lease as materialized (
    select until, open_from from leases where incarnation = $1 and node = $2 and fence = $3 and not ended for share
), clock as materialized (
    select everytick_now() as now, until, open_from from lease
), held as materialized (
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
      from held h
     cross join clock k
)
select k.now, k.until, k.open_from, h.count,
       case when h.count < cardinality($4) then array(select ($4::uuid[])[place] from held) end as ids
  from clock k
 cross join (select count(*) as count from held) h;
