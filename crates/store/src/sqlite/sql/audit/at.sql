-- Reads the id and the time of the first audit row with an id from ?1 on. Primary key: audit.
select id, at from audit where id >= ?1 order by id limit 1;
