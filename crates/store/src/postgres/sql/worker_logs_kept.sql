-- The cancelled among the runs $1 keep what their workers have logged. Keys: worker_claims, runs.
update runs r set output = c.log
  from worker_claims c
 where c.run = any($1) and r.id = c.run and r.state = 4 and r.output is null and c.log is not null;
