-- Inserts moved jobs. Primary key: jobs.
-- Arrays: $1 id, $2 tenant, $3 name, $4 version, $5 created_at, $6 created_by, $7 updated_at, $8 paused_at, $9 pause_note,
-- $10 deleted_at, $11 spec, $12 enabled, $13 target, $14 labels, $15 search.
insert into jobs (id, tenant, name, version, created_at, created_by, updated_at, paused_at, pause_note, deleted_at, spec, enabled,
    target, labels, search)
select n.id, n.tenant, n.name, n.version, n.created_at, n.created_by, n.updated_at, n.paused_at, n.pause_note,
       n.deleted_at, n.spec, n.enabled, n.target, n.labels::jsonb, n.search
  from unnest($1::uuid[], $2::integer[], $3::text[], $4::bigint[], $5::bigint[], $6::text[], $7::bigint[], $8::bigint[],
              $9::text[], $10::bigint[], $11::text[], $12::boolean[], $13::text[], $14::text[], $15::text[])
           as n (id, tenant, name, version, created_at, created_by, updated_at, paused_at, pause_note, deleted_at, spec,
                 enabled, target, labels, search);
