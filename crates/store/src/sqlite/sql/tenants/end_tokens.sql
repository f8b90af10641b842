-- Revokes the tokens of tenant ?1 at time ?2. Index: tokens_tenant.
update tokens set revoked_at = ?2 where coalesce(tenant, 0) = ?1 and revoked_at is null;
