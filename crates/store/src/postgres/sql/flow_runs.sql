-- How those of the runs $1 stand that are on the record. Key: runs.
select id, state, skip_reason, started_at, finished_at, error from runs where id = any($1);
