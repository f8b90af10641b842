-- Lists up to $4 audit rows of tenant $1 with ids from $2 to before $3, newest first. Index: audit_tenant, backwards.
-- $5 actor, $6 action, $9 result; each null if unset. $7 and $8: from this instant, and before this one.
select id, tenant, at, actor, actor_kind, token_id, ip, request_id, action, subject, result, detail
  from audit
 where tenant = $1 and id >= $2 and id < $3
   and ($5::text is null or actor = $5)
   and ($6::text is null or action = $6)
   and ($9::text is null or result = $9)
   and at >= $7 and at < $8
 order by id desc
 limit $4;
