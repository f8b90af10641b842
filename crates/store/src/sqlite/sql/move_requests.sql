-- Up to ?1 rows behind the key (?2, ?3). Key: requests.
select tenant, key, fingerprint, kind, subject, created_at
  from requests
 where (tenant, key) > (?2, ?3)
 order by tenant, key
 limit ?1;
