-- Lists up to $2 tenants with names after $1, by name. Index: tenants_named.
select id, name, state, work, quotas, own_quotas, egress, own_egress, shell, created_at, suspended_at, jobs
  from tenants
 where name collate "C" > $1
 order by name collate "C"
 limit $2;
