-- Removes tenant ?1. Primary key: tenants.
delete from tenants where id = ?1;
