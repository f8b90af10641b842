-- Locks those of the runs $1 that no other session has locked (SKIP LOCKED), and returns them. Key: the day's; `any` leaves no
-- way but that.
select f.id
  from unnest($1::uuid[]) as asked (id)
 cross join lateral (select r.id from runs_of_the_day r where r.id = any (array[asked.id]) for update skip locked) f;
