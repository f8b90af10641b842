-- Removes up to $2 backfills that were over before $1. Index: backfills_over.
delete from backfills where id in (select id from backfills where not active and finished_at < $1 limit $2);
