-- Removes up to $2 backfills that finished before $1 and are no longer active. Index: backfills_over.
delete from backfills where id in (select id from backfills where not active and finished_at < $1 limit $2);
