-- Cancels (state 4), at time $2, those of the runs $1 that wait or are claimed (states 0, 1), and raises their fences.
-- Primary key: runs. Locks the runs in ascending order. Returns for each whether it was claimed.
with locked as materialized (
    select r.id, r.state = 1 as claimed from runs r where r.id = any($1) and r.state in (0, 1) order by r.id for update
)
update runs r
   set state = 4, finished_at = $2, fence = greatest(r.fence + 1, $2::bigint * 1000), incarnation = null
  from locked h
 where r.id = h.id
returning r.id, r.job, h.claimed;
