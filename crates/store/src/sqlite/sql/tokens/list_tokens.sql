-- Lists up to ?3 tokens of tenant ?1 (0: of no tenant) that are not revoked, after id ?2, by id. Index: tokens_tenant.
select hash, id, tenant, name, prefix, role, scope, allowed_ips, created_at, created_by, expires_at, last_used_at,
       last_used_ip, revoked_at, rotated_from
  from tokens
 where coalesce(tenant, 0) = ?1 and id > ?2 and revoked_at is null
 order by id
 limit ?3;
