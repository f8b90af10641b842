-- Holds those of the runs [id, fence] that are still claimed under that fence, in order. Key: the day's; `any` leaves no way but that.
select r.id, r.attempt, r.fence, r.node, r.worker, r.started_at
  from unnest($1::uuid[], $2::bigint[]) as s (id, fence)
  join runs_of_the_day r on r.id = any (array[s.id]) and r.state = 1 and r.fence = s.fence
 order by s.id
   for update of r;
