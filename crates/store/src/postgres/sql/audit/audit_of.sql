-- Lists the newest $3 audit rows of tenant $1 with subject $2. Index: audit_subject, backwards.
select id, tenant, at, actor, actor_kind, token_id, ip, request_id, action, subject, result, detail
  from audit
 where tenant = $1 and subject = $2
 order by id desc
 limit $3;
