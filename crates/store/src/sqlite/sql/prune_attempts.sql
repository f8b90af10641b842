-- Removes the attempts at the runs in ?1. Key: attempts.
delete from attempts where run in (select unhex(value) from json_each(?1));
