-- Moves backfill $1 on by $2 ticks and by the runs that have ended; in state $7 from $9 on, for the reason $10. Key: backfills.
update backfills
   set position = position + $2, spent_until = $3, succeeded = succeeded + $4, failed = failed + $5, cancelled = cancelled + $6,
       state = $7, active = $8, finished_at = coalesce(finished_at, $9), note = coalesce(note, $10)
 where id = $1;
