-- Removes the tokens of tenant ?1 (0: of no tenant) that ended before time ?2. Index: tokens_tenant.
delete from tokens where coalesce(tenant, 0) = ?1 and (revoked_at < ?2 or expires_at < ?2);
