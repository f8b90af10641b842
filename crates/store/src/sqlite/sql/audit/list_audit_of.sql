-- As list_audit.sql (?1 tenant, ?2 lowest id, ?3 highest id, excluded, ?4 limit, ?5 actor, ?6 action, ?7 first instant, ?8 the
-- instant before which it ends, ?9 result), of the subject ?10. Index: audit_subject, backwards.
select id, tenant, at, actor, actor_kind, token_id, ip, request_id, action, subject, result, detail
  from audit indexed by audit_subject
 where tenant = ?1 and subject = ?10 and id >= ?2 and id < ?3
   and (?5 is null or actor = ?5)
   and (?6 is null or action = ?6)
   and (?9 is null or result = ?9)
   and at >= ?7 and at < ?8
 order by id desc
 limit ?4;
