-- Removes the rows of the runs ?1. Primary key: waiting.
delete from waiting where run in (select unhex(value) from json_each(?1));
