-- Reads the states of those of the runs ?1 that have rows. Primary key: runs.
select id, state from runs where id in (select unhex(value) from json_each(?1));
