-- Stores the worker's log as the output of each cancelled run (state 4) among $1 that has no output.
-- Primary keys: worker_claims, runs.
update runs r set output = c.log
  from worker_claims c
 where c.run = any($1) and r.id = c.run and r.state = 4 and r.output is null and c.log is not null;
