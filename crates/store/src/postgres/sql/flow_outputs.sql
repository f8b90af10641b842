-- What the runs $1 left. Key: runs.
select id, state, output, error from runs where id = any($1);
