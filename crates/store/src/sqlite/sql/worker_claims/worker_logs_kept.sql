-- Stores the worker's log as the output of each cancelled run (state 4) among ?1 that has no output.
-- Primary keys: worker_claims, runs.
update runs set output = c.log
  from json_each(?1) as asked
 cross join worker_claims c on c.run = unhex(asked.value)
 where runs.id = c.run and runs.state = 4 and runs.output is null and c.log is not null;
