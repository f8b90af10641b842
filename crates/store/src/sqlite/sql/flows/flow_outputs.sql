-- Reads the states, outputs and errors of the runs ?1. Primary key: runs.
select id, state, output, error from runs where id in (select unhex(value) from json_each(?1));
