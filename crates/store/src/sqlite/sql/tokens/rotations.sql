-- Reads which tokens of tenant ?1 (0: of no tenant) were made from which by a rotation. Index: tokens_tenant.
select id, rotated_from
  from tokens
 where coalesce(tenant, 0) = ?1 and rotated_from is not null;
