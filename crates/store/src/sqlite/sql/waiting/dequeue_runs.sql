-- Removes the runs ?1 from waiting. Primary key: waiting.
delete from waiting where run in (select unhex(value) from json_each(?1));
