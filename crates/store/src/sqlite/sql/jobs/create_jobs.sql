-- Inserts new jobs of tenant ?2 as version 1, created by ?3 at ?4. ?1 JSON array of [id, name, spec].
-- Index: jobs_name (unique) rejects a duplicate name.
insert into jobs (id, tenant, name, version, created_at, created_by, updated_at, spec)
select unhex(n.value ->> 0), ?2, n.value ->> 1, 1, ?4, ?3, ?4, n.value ->> 2 from json_each(?1) as n;
