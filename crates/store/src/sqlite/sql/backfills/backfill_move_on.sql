-- Advances backfill ?1 by ?2 ticks and adds the runs that have ended to its counts. Primary key: backfills.
-- ?3 spent_until (microseconds), ?4 succeeded, ?5 failed, ?6 cancelled, ?7 state (0 running, 1 done, 2 cancelled), ?8 active,
-- ?9 finished_at, ?10 note. The first finished_at and the first note stay.
update backfills
   set position = position + ?2, spent_until = ?3, succeeded = succeeded + ?4, failed = failed + ?5, cancelled = cancelled + ?6,
       state = ?7, active = ?8, finished_at = coalesce(finished_at, ?9), note = coalesce(note, ?10)
 where id = ?1;
