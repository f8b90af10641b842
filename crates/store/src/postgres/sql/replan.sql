-- Lowers the cursors of the jobs in $1, which are held, to $2 where they lie ahead: their next ticks are looked for anew. Key: cursors;
-- `coalesce` keeps the guard from choosing another index.
update cursors set next_tick = $2 where job = any($1) and coalesce(next_tick > $2, false);
