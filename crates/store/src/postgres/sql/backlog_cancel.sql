-- Cancels, at $2, those of the runs $1 that wait; tells which of them are of a flow. Key: the day's; `any` leaves no way but that.
update runs_of_the_day r
   set state = 4, finished_at = $2, fence = greatest(r.fence + 1, $2::bigint * 1000), incarnation = null
  from unnest($1::uuid[]) as asked (id)
 where r.id = any (array[asked.id]) and r.state = 0
returning r.id, r.flow is not null as of_flow;
