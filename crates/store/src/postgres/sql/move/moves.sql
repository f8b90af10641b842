-- Reads the move into this database, if there was one. Scans moves, which has at most one row.
select id, source, days_from, finished_at from moves;
