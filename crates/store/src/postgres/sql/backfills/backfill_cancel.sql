-- Cancels backfill $1 at time $2 with note $3, if it is running: it makes no more runs. Primary key: backfills.
-- States of a backfill: 0 running, 2 cancelled.
update backfills set state = 2, finished_at = $2, note = $3 where id = $1 and state = 0;
