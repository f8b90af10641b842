-- Brings jobs over. Key: jobs.
insert into jobs (id, tenant, name, version, created_at, created_by, updated_at, paused_at, pause_note, deleted_at, spec, enabled,
    target, labels, search)
select n.id, n.tenant, n.name, n.version, n.created_at, n.created_by, n.updated_at, n.paused_at, n.pause_note,
       n.deleted_at, n.spec, n.enabled, n.target, n.labels::jsonb, n.search
  from unnest($1::uuid[], $2::integer[], $3::text[], $4::bigint[], $5::bigint[], $6::text[], $7::bigint[], $8::bigint[],
              $9::text[], $10::bigint[], $11::text[], $12::boolean[], $13::text[], $14::text[], $15::text[])
           as n (id, tenant, name, version, created_at, created_by, updated_at, paused_at, pause_note, deleted_at, spec,
                 enabled, target, labels, search);
