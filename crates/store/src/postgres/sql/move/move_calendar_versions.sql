-- Inserts moved calendar versions. Primary key: calendar_versions.
-- Arrays: $1 tenant, $2 name, $3 version, $4 valid_from, $5 spec.
insert into calendar_versions (tenant, name, version, valid_from, spec)
select n.tenant, n.name, n.version, n.valid_from, n.spec
  from unnest($1::integer[], $2::text[], $3::bigint[], $4::bigint[], $5::text[])
           as n (tenant, name, version, valid_from, spec);
