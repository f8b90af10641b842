-- Holds backfill $1: whoever else would move it on waits. Key: backfills.
select id from backfills where id = $1 for no key update;
