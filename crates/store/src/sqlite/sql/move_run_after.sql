-- The first run behind the id ?1. Key: runs.
select id from runs where id > ?1 order by id limit 1;
