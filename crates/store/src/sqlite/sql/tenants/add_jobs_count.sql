-- Adds ?2 to the number of live jobs of tenant ?1. Primary key: tenants.
update tenants set jobs = jobs + ?2 where id = ?1;
