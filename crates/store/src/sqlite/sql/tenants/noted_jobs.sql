-- Lists up to ?2 noted jobs of tenant ?1, by id. Primary key: tenant_jobs.
select job from tenant_jobs where tenant = ?1 order by job limit ?2;
