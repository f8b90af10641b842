-- Inserts a session. ?1 hash, ?2 id, ?3 user, ?4 token, ?5 grants, ?6 tenant, ?7 created_at and seen_at, ?8 expires_at,
-- ?9 ip. Primary key: sessions.
insert into sessions (hash, id, user_name, token, grants, tenant, created_at, seen_at, expires_at, ip)
values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?7, ?8, ?9);
