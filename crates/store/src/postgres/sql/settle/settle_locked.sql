-- Locks those of the runs that are claimed (state 1) under their fence. Skips and returns the runs that another session has
-- locked. Arrays: $1 run, $2 fence. Primary key: the day's table. `any (array[...])` leaves the planner no way but the key.
with claimed as materialized (
    select s.id, s.fence
      from unnest($1::uuid[], $2::bigint[]) as s (id, fence)
      join runs_of_the_day r on r.id = any (array[s.id]) and r.state = 1 and r.fence = s.fence
), free as materialized (
    select f.id
      from claimed c
     cross join lateral (select r.id from runs_of_the_day r where r.id = any (array[c.id]) for update skip locked) f
)
select id, fence from claimed where id not in (select id from free);
