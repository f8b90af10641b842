-- Keeps the outputs [id, attempt, output] where the run is cancelled, that attempt was its last, and none is kept. Key: runs.
update runs r
   set output = k.output
  from unnest($1::uuid[], $2::integer[], $3::text[]) as k (id, attempt, output)
 where r.id = k.id and r.state = 4 and r.attempt = k.attempt and r.output is null;
