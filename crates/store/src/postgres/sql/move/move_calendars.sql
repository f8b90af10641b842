-- Inserts moved calendars. Primary key: calendars.
-- Arrays: $1 tenant, $2 name, $3 version, $4 created_at, $5 created_by, $6 updated_at.
insert into calendars (tenant, name, version, created_at, created_by, updated_at)
select n.tenant, n.name, n.version, n.created_at, n.created_by, n.updated_at
  from unnest($1::integer[], $2::text[], $3::bigint[], $4::bigint[], $5::text[], $6::bigint[])
           as n (tenant, name, version, created_at, created_by, updated_at);
