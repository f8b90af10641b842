-- Lists up to $3 audit rows of tenant $4 with ids above $1 and up to $2, oldest first. Index: audit_tenant.
select id, tenant, at, actor, actor_kind, token_id, ip, request_id, action, subject, result, detail
  from audit
 where tenant = $4 and id > $1 and id <= $2
 order by id
 limit $3;
