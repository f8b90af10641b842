-- Locks those of the runs $1 that no other session has locked (SKIP LOCKED), and returns them. Primary key: the day's table.
-- `any (array[...])` leaves the planner no way but the key.
select f.id
  from unnest($1::uuid[]) as asked (id)
 cross join lateral (select r.id from runs_of_the_day r where r.id = any (array[asked.id]) for update skip locked) f;
