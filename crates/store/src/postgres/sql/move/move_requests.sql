-- Inserts moved requests. Primary key: requests.
-- Arrays: $1 tenant, $2 key, $3 fingerprint, $4 kind, $5 subject, $6 created_at.
insert into requests (tenant, key, fingerprint, kind, subject, created_at)
select n.tenant, n.key, n.fingerprint, n.kind, n.subject, n.created_at
  from unnest($1::integer[], $2::text[], $3::bytea[], $4::text[], $5::uuid[], $6::bigint[])
           as n (tenant, key, fingerprint, kind, subject, created_at);
