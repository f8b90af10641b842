-- Up to ?1 rows behind the key ?2. Key: audit.
select id, tenant, at, actor, action, subject, detail
  from audit
 where id > ?2
 order by id
 limit ?1;
