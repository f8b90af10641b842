-- Lowers the cursors of the jobs $1 that lie after $2 to $2, so that their next ticks are computed again. Primary key: cursors.
-- The caller has locked the jobs' epochs. `coalesce` keeps the guard from choosing another index.
update cursors set next_tick = $2 where job = any($1) and coalesce(next_tick > $2, false);
