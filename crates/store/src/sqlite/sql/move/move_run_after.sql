-- Finds the first run after id ?1. Primary key: runs.
select id from runs where id > ?1 order by id limit 1;
