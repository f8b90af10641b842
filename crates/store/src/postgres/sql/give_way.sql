-- Cancels, at $3, those of the runs [id, error] that are open and that no other session has locked; their fences rise. Waits for
-- no lock: a claim locks `waiting` before `runs`, so a run whose waiting row is locked is left out as well. Keys: waiting, runs.
with queued as materialized (
    select w.run
      from unnest($1::uuid[]) as g (id)
     cross join lateral (select run from waiting where run = g.id for update skip locked) w
), held as materialized (
    select f.id, g.error
      from unnest($1::uuid[], $2::text[]) as g (id, error)
     cross join lateral (select r.id from runs r where r.id = g.id and r.state in (0, 1) for update skip locked) f
     where g.id in (select run from queued) or not exists (select 1 from waiting w where w.run = g.id)
)
update runs r
   set state = 4, finished_at = $3, fence = greatest(r.fence + 1, $3::bigint * 1000), incarnation = null, error = h.error
  from held h
 where r.id = h.id
returning r.id;
