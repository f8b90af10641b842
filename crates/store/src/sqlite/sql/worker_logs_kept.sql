-- The cancelled among the runs ?1 keep what their workers have logged. Keys: worker_claims, runs.
update runs set output = c.log
  from json_each(?1) as asked
 cross join worker_claims c on c.run = unhex(asked.value)
 where runs.id = c.run and runs.state = 4 and runs.output is null and c.log is not null;
