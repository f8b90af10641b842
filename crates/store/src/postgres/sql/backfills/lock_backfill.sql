-- Locks backfill $1, so that no other transaction advances it. Primary key: backfills.
select id from backfills where id = $1 for no key update;
