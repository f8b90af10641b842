-- Locks tenant $1, so that creates run one at a time, and reads its number of live jobs. Primary key: tenants.
select jobs from tenants where id = $1 for update;
