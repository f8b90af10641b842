-- How many live jobs tenant ?1 has. Key: tenants.
select jobs from tenants where id = ?1;
