-- Lists up to $3 audit rows of all tenants with ids above $1 and up to $2, oldest first. Primary key: audit.
select id, tenant, at, actor, actor_kind, token_id, ip, request_id, action, subject, result, detail
  from audit
 where id > $1 and id <= $2
 order by id
 limit $3;
