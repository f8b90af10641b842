-- Removes the rows of the runs ?1. Primary key: runs.
delete from runs where id in (select unhex(value) from json_each(?1));
