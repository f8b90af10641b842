-- Removes the epochs of the jobs in ?1. Key: epochs.
delete from epochs where job in (select unhex(value) from json_each(?1));
