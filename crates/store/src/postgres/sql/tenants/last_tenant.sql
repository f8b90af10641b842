-- Reads the highest id of a tenant. Primary key: tenants.
select coalesce(max(id), 0) from tenants;
