-- Reads the tokens with the hashes $1. Primary key: tokens.
select hash, id, tenant, name, prefix, role, scope, allowed_ips, created_at, created_by, expires_at, last_used_at,
       last_used_ip, revoked_at, rotated_from
  from tokens
 where hash = any($1);
