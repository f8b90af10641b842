-- Lists up to ?2 tenants with names after ?1, by name. Index: the unique one of tenants.
select id, name, state, work, quotas, own_quotas, egress, own_egress, shell, created_at, suspended_at, jobs
  from tenants
 where name > ?1
 order by name
 limit ?2;
