-- Keeps the outputs [id, attempt, output] of ?1 where the run is cancelled, that attempt was its last, and none is kept. Key: runs.
update runs set output = k.value ->> 2
  from json_each(?1) as k
 where runs.id = unhex(k.value ->> 0) and runs.state = 4 and runs.attempt = k.value ->> 1 and runs.output is null;
