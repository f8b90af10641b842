-- Ends the runs [id, fence, state, started_at, ended_at, error, output] that are still claimed under that fence. Key: the day's.
update runs_of_the_day r
   set state = s.state, started_at = coalesce(s.started_at, r.started_at), finished_at = s.ended_at, error = s.error,
       output = s.output, incarnation = null
  from unnest($1::uuid[], $2::bigint[], $3::smallint[], $4::bigint[], $5::bigint[], $6::text[], $7::text[])
           as s (id, fence, state, started_at, ended_at, error, output)
 where r.id = s.id and r.state = 1 and r.fence = s.fence
returning r.id, r.worker is not null as worked;
