-- Reads up to ?1 rows of requests after (?2 tenant, ?3 key), for a move. Primary key: requests.
select tenant, key, fingerprint, kind, subject, created_at
  from requests
 where (tenant, key) > (?2, ?3)
 order by tenant, key
 limit ?1;
