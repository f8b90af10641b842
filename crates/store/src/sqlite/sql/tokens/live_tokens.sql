-- Reads the ids and names of the tokens of tenant ?1 (0: of no tenant) that are valid at time ?2. Index: tokens_tenant.
select id, name
  from tokens
 where coalesce(tenant, 0) = ?1 and revoked_at is null and (expires_at is null or expires_at > ?2);
