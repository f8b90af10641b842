-- Inserts the jobs [id, name, spec] of ?1, made by ?3 at ?4 for tenant ?2, as version 1. Index: jobs_name refuses a second one.
insert into jobs (id, tenant, name, version, created_at, created_by, updated_at, spec)
select unhex(n.value ->> 0), ?2, n.value ->> 1, 1, ?4, ?3, ?4, n.value ->> 2 from json_each(?1) as n;
