-- Reads every stored version of the calendars ?2 of tenant ?1. Primary key: calendar_versions.
select v.tenant, v.name, v.version, v.valid_from, v.spec
  from json_each(?2) as asked
 cross join calendar_versions v on v.tenant = ?1 and v.name = asked.value
 order by v.name, v.version;
