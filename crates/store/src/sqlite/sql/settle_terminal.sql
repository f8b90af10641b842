-- Ends the runs [id, fence, state, started_at, ended_at, error, output] of ?1 that are still claimed under that fence. Key: runs.
update runs set state = s.value ->> 2, started_at = coalesce(s.value ->> 3, started_at), finished_at = s.value ->> 4,
                error = s.value ->> 5, output = s.value ->> 6, incarnation = null
  from json_each(?1) as s
 where runs.id = unhex(s.value ->> 0) and runs.state = 1 and runs.fence = s.value ->> 1;
