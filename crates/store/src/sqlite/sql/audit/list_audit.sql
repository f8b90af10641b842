-- Lists up to ?3 audit rows of tenant ?1 with ids below ?2, newest first. Index: audit_tenant, backwards.
select id, at, actor, action, subject, detail from audit where tenant = ?1 and id < ?2 order by id desc limit ?3;
