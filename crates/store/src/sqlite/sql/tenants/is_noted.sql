-- Whether job ?2 of tenant ?1 is noted. Primary key: tenant_jobs.
select exists (select 1 from tenant_jobs where tenant = ?1 and job = ?2);
