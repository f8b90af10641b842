-- Reads the sessions with the hashes ?1, a JSON array of hexadecimal texts. Primary key: sessions.
select hash, id, user_name, token, grants, tenant, created_at, seen_at, expires_at, ip
  from sessions
 where hash in (select unhex(value) from json_each(?1));
