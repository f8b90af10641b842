-- How those of the runs of ?1 stand that are on the record. Key: runs.
select id, state, skip_reason, started_at, finished_at, error from runs where id in (select unhex(value) from json_each(?1));
