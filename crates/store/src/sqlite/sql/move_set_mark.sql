-- Marks the file: its move ?1 goes to ?2 since ?3. Going on with it may be by another name of the target.
insert into moved_to (one, id, target, started_at) values (1, ?1, ?2, ?3)
on conflict (one) do update set target = excluded.target;
