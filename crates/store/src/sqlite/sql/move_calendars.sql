-- Up to ?1 rows behind the key (?2, ?3). Key: calendars.
select tenant, name, version, created_at, created_by, updated_at
  from calendars
 where (tenant, name) > (?2, ?3)
 order by tenant, name
 limit ?1;
