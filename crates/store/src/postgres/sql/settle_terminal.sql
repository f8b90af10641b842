-- Ends the runs [id, fence, state, started_at, ended_at, error, output] that are still claimed under that fence. Tells which of them
-- a worker held, and which a flow may follow. Key: the day's; index: job_parents_parent.
update runs_of_the_day r
   set state = s.state, started_at = coalesce(s.started_at, r.started_at), finished_at = s.ended_at, error = s.error,
       output = s.output, incarnation = null
  from unnest($1::uuid[], $2::bigint[], $3::smallint[], $4::bigint[], $5::bigint[], $6::text[], $7::text[])
           as s (id, fence, state, started_at, ended_at, error, output)
 where r.id = s.id and r.state = 1 and r.fence = s.fence
returning r.id, r.worker is not null as worked,
          r.flow is not null
          -- Not `exists`: that may be answered by reading all edges once.
          or coalesce((select true from job_parents p where p.parent = r.job limit 1), false) as steps;
