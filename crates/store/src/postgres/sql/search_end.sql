-- The id of the last run that a search reads which begins before $2, ends at $1 and reads at most $3 + 1 runs; none if there
-- are fewer. Key: runs, backwards.
select id from runs where id >= $1 and id < $2 order by id desc offset $3 limit 1;
