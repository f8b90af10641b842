-- Records ticks (cause 1), one per job, in one statement. Primary keys: leases, epochs, cursors, runs.
-- 1. Share-locks the lease of incarnation $1 and node $2, which must be alive and carry fence $3. Then reads the clock.
-- 2. Key-share-locks the epochs of the jobs that still have the planned epoch. Skips jobs that an edit has locked.
-- 3. Inserts the ticks of exactly these jobs that are not after the clock and not below the cursor.
-- It waits for no lock but the lease. A tick that is recorded already fails the statement; record_again.sql is the retry.
-- Returns the number of inserted ticks, and their ids if not all were.
-- Arrays, in order of job: $4 id, $5 job, $6 epoch, $7 tick, $8 due_at (empty: all are the ticks),
-- $9 state (0 waiting, 1 claimed, 5 skipped), $10 late (empty: none), $11 skip reason (empty: none).
-- Only the jobs are unnested; other values are read by position. In an array of fixed width without nulls that is immediate, and
-- each further unnested column would cost one more table. `lateral` and the subselect in the guard leave the planner no way but
-- one key probe per job: a join would read all jobs if the planner expects few.
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
)
select k.now, k.until, k.open_from, h.count,
       case when h.count < cardinality($4) then array(select ($4::uuid[])[place] from locked) end as ids
  from clock k
 cross join (select count(*) as count from locked) h;
