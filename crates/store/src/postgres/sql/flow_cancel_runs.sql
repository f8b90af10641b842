-- Cancels, at $2, those of the runs $1 that are open, held in order; their fences rise. Tells which were being worked on. Key: runs.
with held as materialized (
    select r.id, r.state = 1 as claimed from runs r where r.id = any($1) and r.state in (0, 1) order by r.id for update
)
update runs r
   set state = 4, finished_at = $2, fence = greatest(r.fence + 1, $2::bigint * 1000), incarnation = null
  from held h
 where r.id = h.id
returning r.id, r.job, h.claimed;
