-- Removes the rows of the runs ?1. Primary key: attempts.
delete from attempts where run in (select unhex(value) from json_each(?1));
