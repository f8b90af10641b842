-- Cancels (state 4), at time $1, superseded runs that wait or are claimed (states 0, 1), and raises their fences.
-- Primary keys: waiting, runs. Arrays: $2 run, $3 error. Returns the cancelled runs.
-- Skips runs that another session has locked, so it waits for no lock.
-- A claim locks `waiting` before `runs`, so a run whose waiting row is locked is skipped too.
with queued as materialized (
    select w.run
      from unnest($2::uuid[]) as g (id)
     cross join lateral (select run from waiting where run = g.id for update skip locked) w
), locked as materialized (
    select f.id, g.error
      from unnest($2::uuid[], $3::text[]) as g (id, error)
     cross join lateral (select r.id from runs r where r.id = g.id and r.state in (0, 1) for update skip locked) f
     where g.id in (select run from queued) or not exists (select 1 from waiting w where w.run = g.id)
)
update runs r
   set state = 4, finished_at = $1, fence = greatest(r.fence + 1, $1::bigint * 1000), incarnation = null, error = h.error
  from locked h
 where r.id = h.id
returning r.id;
