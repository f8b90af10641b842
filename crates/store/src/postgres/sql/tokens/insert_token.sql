-- Inserts a token. $1 hash, $2 id, $3 tenant, $4 name, $5 prefix, $6 role, $7 scope, $8 allowed_ips, $9 created_at, $10 created_by,
-- $11 expires_at, $12 rotated_from. Primary key: tokens.
insert into tokens (hash, id, tenant, name, prefix, role, scope, allowed_ips, created_at, created_by, expires_at, rotated_from)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12);
