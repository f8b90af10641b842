-- The states of those of the runs in ?1 that are on the record. Key: runs.
select id, state from runs where id in (select unhex(value) from json_each(?1));
