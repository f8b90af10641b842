-- The states of those of the runs $1 that are on the record. Key: runs.
select id, state from runs where id = any($1);
