-- Reads up to ?1 rows of calendar_versions after (?2 tenant, ?3 name, ?4 version), for a move. Primary key: calendar_versions.
select tenant, name, version, valid_from, spec
  from calendar_versions
 where (tenant, name, version) > (?2, ?3, ?4)
 order by tenant, name, version
 limit ?1;
