-- Reads what limits the definitions of tenant ?1. Primary key: tenants.
select state, quotas, own_quotas, jobs from tenants where id = ?1;
