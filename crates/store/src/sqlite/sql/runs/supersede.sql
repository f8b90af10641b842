-- Cancels (state 4), at time ?1, superseded runs that wait or are claimed (states 0, 1), and raises their fences.
-- Primary key: runs. ?2 JSON array of [run, error]. Returns the cancelled runs.
update runs set state = 4, finished_at = ?1, fence = max(fence + 1, ?1 * 1000), incarnation = null, error = g.value ->> 1
  from json_each(?2) as g
 where runs.id = unhex(g.value ->> 0) and runs.state in (0, 1)
returning id;
