-- Reads the sessions with the hashes $1. Primary key: sessions.
select hash, id, user_name, token, grants, tenant, created_at, seen_at, expires_at, ip
  from sessions
 where hash = any($1);
