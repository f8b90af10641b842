-- Removes the attempts at runs with ids from $1 to before $2, but those kept as somebody's last. Keys: attempts, last_runs.
delete from attempts a where a.run >= $1 and a.run < $2 and not exists (select 1 from last_runs l where l.id = a.run);
