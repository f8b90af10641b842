-- Holds tenant $1, so that creates take turns: how many live jobs it has. Key: tenants.
select jobs from tenants where id = $1 for update;
