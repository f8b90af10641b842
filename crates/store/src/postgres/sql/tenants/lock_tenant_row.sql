-- Locks tenant $1 against every transaction that defines its jobs. Primary key: tenants.
select id from tenants where id = $1 for update;
