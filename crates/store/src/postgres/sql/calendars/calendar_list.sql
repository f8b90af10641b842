-- Lists up to $3 calendars of tenant $1 after name $2, by name, with their newest versions.
-- Primary keys: calendars, calendar_versions, calendar_jobs.
select c.name, c.version, c.created_at, c.created_by, c.updated_at, v.spec,
       (select count(*) from calendar_jobs u where u.tenant = c.tenant and u.calendar = c.name) as jobs
  from calendars c
  join calendar_versions v on v.tenant = c.tenant and v.name = c.name and v.version = c.version
 where c.tenant = $1 and c.name > $2
 order by c.name
 limit $3;
