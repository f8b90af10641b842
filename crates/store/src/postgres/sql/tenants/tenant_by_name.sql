-- Reads the tenant named $1. Index: tenants_name_key.
select id, name, state, work, quotas, own_quotas, egress, own_egress, shell, created_at, suspended_at, jobs
  from tenants
 where name = $1;
