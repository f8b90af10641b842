-- Forgets job $2 of tenant $1. Primary key: tenant_jobs.
delete from tenant_jobs where tenant = $1 and job = $2;
