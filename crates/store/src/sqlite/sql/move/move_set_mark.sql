-- Marks the file as moving to ?2 since ?3, under the id ?1. Primary key: moved_to.
-- A resumed move may name the target by another URL, so a mark that exists gets the new one.
insert into moved_to (one, id, target, started_at) values (1, ?1, ?2, ?3)
on conflict (one) do update set target = excluded.target;
