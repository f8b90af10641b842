-- Requires a release that knows tenants from now on, if there is a tenant beside the default one. Scans schema_steps, a small
-- table. Primary key: tenants.
update schema_steps set works_from = step
 where name = 'tenants' and works_from < step and exists (select 1 from tenants where id > 1);
