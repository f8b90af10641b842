-- Reads every stored version of the calendars $2 of tenant $1. Primary key: calendar_versions.
select v.tenant, v.name, v.version, v.valid_from, v.spec
  from calendar_versions v
 where v.tenant = $1 and v.name = any($2)
 order by v.name, v.version;
