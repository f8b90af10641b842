-- Takes the runs in ?1 from among the waiting. Key: waiting.
delete from waiting where run in (select unhex(value) from json_each(?1));
