-- Reads the tenant named ?1. Index: the unique one of tenants.
select id, name, state, work, quotas, own_quotas, egress, own_egress, shell, created_at, suspended_at, jobs
  from tenants
 where name = ?1;
