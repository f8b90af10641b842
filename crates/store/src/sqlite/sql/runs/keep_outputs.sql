-- Stores outputs of cancelled runs (state 4). ?1 JSON array of [run, attempt, output]. Primary key: runs.
-- Only if that attempt was the run's last and the run has no output yet.
update runs set output = k.value ->> 2
  from json_each(?1) as k
 where runs.id = unhex(k.value ->> 0) and runs.state = 4 and runs.attempt = k.value ->> 1 and runs.output is null;
