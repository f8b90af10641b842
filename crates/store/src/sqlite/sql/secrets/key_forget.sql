-- Deletes operator key ?1. Primary key: keys.
delete from keys where id = ?1;
