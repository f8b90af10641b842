-- Removes the attempts of runs with ids from $1 to before $2, except those of runs in last_runs. Primary key: attempts.
-- Index: last_runs_id.
delete from attempts a where a.run >= $1 and a.run < $2 and not exists (select 1 from last_runs l where l.id = a.run);
