-- Cancels, at $3, those of the runs [id, error] that are open, held in order; their fences rise. Key: runs.
with held as materialized (
    select r.id, g.error
      from unnest($1::uuid[], $2::text[]) as g (id, error)
      join runs r on r.id = g.id
     where r.state in (0, 1)
     order by r.id
       for update of r
)
update runs r
   set state = 4, finished_at = $3, fence = greatest(r.fence + 1, $3::bigint * 1000), incarnation = null, error = h.error
  from held h
 where r.id = h.id
returning r.id;
