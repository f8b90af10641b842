-- Inserts new jobs of tenant $8 as version 1, created by $9 at $10. Index: jobs_name (unique) rejects a duplicate name.
-- Arrays: $1 id, $2 name, $3 spec, $4 enabled, $5 target, $6 labels, $7 search.
insert into jobs (id, tenant, name, version, created_at, created_by, updated_at, enabled, target, labels, search, spec)
select n.id, $8, n.name, 1, $10, $9, $10, n.enabled, n.target, n.labels::jsonb, n.search, n.spec
  from unnest($1::uuid[], $2::text[], $3::text[], $4::boolean[], $5::text[], $6::text[], $7::text[])
           as n (id, name, spec, enabled, target, labels, search);
