-- Locks those of the runs that are still claimed (state 1) under their fence, in ascending order. Arrays: $1 run, $2 fence.
-- Primary key: the day's table. `any (array[...])` leaves the planner no way but the key.
select r.id, r.tenant, r.attempt, r.fence, r.node, r.worker, r.started_at
  from unnest($1::uuid[], $2::bigint[]) as s (id, fence)
  join runs_of_the_day r on r.id = any (array[s.id]) and r.state = 1 and r.fence = s.fence
 order by s.id
   for update of r;
