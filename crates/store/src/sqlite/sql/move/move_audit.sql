-- Reads up to ?1 rows of audit after id ?2, for a move. Primary key: audit.
select id, tenant, at, actor, action, subject, detail
  from audit
 where id > ?2
 order by id
 limit ?1;
