-- Removes the cursors of the jobs ?1. Primary key: cursors.
delete from cursors where job in (select unhex(value) from json_each(?1));
