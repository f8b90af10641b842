-- Returns claimed runs (state 1) to waiting (state 0), due no earlier than their tick; without due_at, due as before.
-- Primary key: runs.
-- ?1 JSON array of [run, due_at, unspent (attempts to give back), lost, error].
update runs set state = 0, due_at = coalesce(max(s.value ->> 1, scheduled_at), due_at),
                attempt = attempt - (s.value ->> 2),
                lost = lost + (s.value ->> 3), error = s.value ->> 4, node = null, worker = null, incarnation = null, started_at = null
  from json_each(?1) as s
 where runs.id = unhex(s.value ->> 0) and runs.state = 1;
