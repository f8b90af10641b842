-- Stores the answer to a request; it replaces an expired one under the same key. Primary key: requests.
-- ?1 tenant, ?2 key, ?3 fingerprint, ?4 kind, ?5 subject, ?6 created_at.
insert or replace into requests (tenant, key, fingerprint, kind, subject, created_at) values (?1, ?2, ?3, ?4, ?5, ?6);
