-- Lists up to $1 tenants with work in the background, by id. Index: tenants_work.
select id, name, state, work, quotas, own_quotas, egress, own_egress, shell, created_at, suspended_at, jobs
  from tenants
 where work is not null
 order by id
 limit $1;
