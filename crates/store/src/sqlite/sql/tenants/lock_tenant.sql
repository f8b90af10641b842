-- Reads the number of live jobs of tenant ?1. Primary key: tenants.
select jobs from tenants where id = ?1;
