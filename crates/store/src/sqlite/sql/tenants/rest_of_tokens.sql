-- Removes up to ?2 tokens of tenant ?1. Index: tokens_tenant. Primary key: tokens.
delete from tokens
 where hash in (select hash from tokens where coalesce(tenant, 0) = ?1 order by id limit ?2);
