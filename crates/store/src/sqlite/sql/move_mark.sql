-- The mark. One row.
select id, target, started_at, finished_at from moved_to;
