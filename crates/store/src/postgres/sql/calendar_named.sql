-- Every kept version of the calendars of tenant $1 that $2 names. Key: calendar_versions.
select v.tenant, v.name, v.version, v.valid_from, v.spec
  from calendar_versions v
 where v.tenant = $1 and v.name = any($2)
 order by v.name, v.version;
