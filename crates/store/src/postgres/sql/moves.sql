-- The moves into this database. One, or none.
select id, source, days_from, finished_at from moves;
