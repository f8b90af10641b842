-- Remembers what came of a request; an older one under the same key has expired. Key: requests.
insert or replace into requests (tenant, key, fingerprint, kind, subject, created_at) values (?1, ?2, ?3, ?4, ?5, ?6);
