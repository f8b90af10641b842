-- Claims (state 0 to 1) the runs $1 for worker $3 at $2. Primary key: the day's table. The caller has removed them from waiting.
-- The nil incarnation marks the claim of a worker, not of a node. The fence also increases across a database promotion (I9).
-- `any (array[...])` leaves the planner no way but the key.
update runs_of_the_day r
   set state = 1, fence = greatest(r.fence + 1, $2::bigint * 1000), attempt = r.attempt + 1, node = null, worker = $3,
       incarnation = '00000000-0000-0000-0000-000000000000', started_at = $2, error = null
  from unnest($1::uuid[]) as asked (id)
 where r.id = any (array[asked.id]) and r.state = 0
returning r.id, r.job, r.tenant, r.cause, r.scheduled_at, r.fence, r.attempt, r.lost, r.payload;
