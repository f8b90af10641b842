-- Reads up to ?1 rows of tenants after id ?2, for a move. Primary key: tenants.
select id, name, jobs
  from tenants
 where id > ?2
 order by id
 limit ?1;
