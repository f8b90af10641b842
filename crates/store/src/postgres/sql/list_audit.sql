-- The audit trail of tenant $1 before $2, newest first. Index: audit_tenant, backwards.
select * from audit where tenant = $1 and id < $2 order by id desc limit $3;
