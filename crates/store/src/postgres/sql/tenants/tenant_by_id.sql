-- Reads tenant $1. Primary key: tenants.
select id, name, state, work, quotas, own_quotas, egress, own_egress, shell, created_at, suspended_at, jobs
  from tenants
 where id = $1;
