-- Reads the mark of a move. Scans moved_to, which has one row.
select id, target, started_at, finished_at from moved_to;
