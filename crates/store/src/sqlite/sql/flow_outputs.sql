-- What the runs of ?1 left. Key: runs.
select id, state, output, error from runs where id in (select unhex(value) from json_each(?1));
