-- Up to ?1 rows behind the key (?2, ?3, ?4). Key: calendar_versions.
select tenant, name, version, valid_from, spec
  from calendar_versions
 where (tenant, name, version) > (?2, ?3, ?4)
 order by tenant, name, version
 limit ?1;
