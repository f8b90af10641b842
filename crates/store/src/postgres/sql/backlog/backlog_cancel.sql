-- Cancels (state 4), at time $2, those of the runs $1 that wait (state 0). Primary key: the day's table.
-- Returns for each whether it belongs to a flow. `any (array[...])` leaves the planner no way but the key.
update runs_of_the_day r
   set state = 4, finished_at = $2, fence = greatest(r.fence + 1, $2::bigint * 1000), incarnation = null
  from unnest($1::uuid[]) as asked (id)
 where r.id = any (array[asked.id]) and r.state = 0
returning r.id, r.flow is not null as of_flow;
