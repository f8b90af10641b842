-- Removes the rows of the runs ?1. Primary key: flows.
delete from flows where id in (select unhex(value) from json_each(?1));
