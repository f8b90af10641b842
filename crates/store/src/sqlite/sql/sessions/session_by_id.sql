-- Reads the session with id ?1. Index: sessions_id.
select hash, id, user_name, token, grants, tenant, created_at, seen_at, expires_at, ip
  from sessions
 where id = ?1;
