-- Notes job $2 of tenant $1. Primary key: tenant_jobs.
insert into tenant_jobs (tenant, job) values ($1, $2) on conflict (tenant, job) do nothing;
