-- Remembers what came of a request; an older one under the same key has expired. Key: requests.
insert into requests (tenant, key, fingerprint, kind, subject, created_at) values ($1, $2, $3, $4, $5, $6)
on conflict (tenant, key) do update
   set fingerprint = excluded.fingerprint, kind = excluded.kind, subject = excluded.subject, created_at = excluded.created_at;
