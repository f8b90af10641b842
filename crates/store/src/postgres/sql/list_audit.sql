-- The audit trail of tenant $1 before $2, newest first. Index: audit_tenant, backwards.
select id, tenant, at, actor, action, subject, detail from audit where tenant = $1 and id < $2 order by id desc limit $3;
