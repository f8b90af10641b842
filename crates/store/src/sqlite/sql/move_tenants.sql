-- Up to ?1 rows behind the key ?2. Key: tenants.
select id, name, jobs
  from tenants
 where id > ?2
 order by id
 limit ?1;
