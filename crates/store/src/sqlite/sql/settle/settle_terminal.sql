-- Ends runs that are still claimed (state 1) under their fence. Primary key: runs.
-- ?1 JSON array of [run, fence, new state (2 succeeded, 3 failed, 4 cancelled), started_at, finished_at, error, output].
-- `limit -1` makes SQLite expand each array once, not once per column.
update runs set state = s.state, started_at = coalesce(s.started_at, runs.started_at), finished_at = s.ended_at,
                error = s.error, output = s.output, incarnation = null
  from (select unhex(v ->> 0) as run, v ->> 1 as fence, v ->> 2 as state, v ->> 3 as started_at, v ->> 4 as ended_at,
               v ->> 5 as error, v ->> 6 as output
          from (select value as v from json_each(?1) limit -1)) as s
 where runs.id = s.run and runs.state = 1 and runs.fence = s.fence;
