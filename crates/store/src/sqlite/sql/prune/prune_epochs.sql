-- Removes the epochs of the jobs ?1. Primary key: epochs.
delete from epochs where job in (select unhex(value) from json_each(?1));
