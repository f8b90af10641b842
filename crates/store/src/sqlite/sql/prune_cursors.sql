-- Removes the cursors of the jobs in ?1. Key: cursors.
delete from cursors where job in (select unhex(value) from json_each(?1));
