-- Stores outputs of cancelled runs (state 4). Arrays: $1 run, $2 attempt, $3 output. Primary key: runs.
-- Only if that attempt was the run's last and the run has no output yet.
update runs r
   set output = k.output
  from unnest($1::uuid[], $2::integer[], $3::text[]) as k (id, attempt, output)
 where r.id = k.id and r.state = 4 and r.attempt = k.attempt and r.output is null;
