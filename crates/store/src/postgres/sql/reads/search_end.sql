-- Finds the lowest id that a search may read: the run at offset $3, newest first, among ids from $1 to before $2.
-- Primary key: runs, backwards. So a search reads at most $3 + 1 runs. No row: there are fewer.
select id from runs where id >= $1 and id < $2 order by id desc offset $3 limit 1;
