-- Ends backfill $1 at $2 for the reason $3 if it is under way: it makes no more runs. Key: backfills.
update backfills set state = 2, finished_at = $2, note = $3 where id = $1 and state = 0;
