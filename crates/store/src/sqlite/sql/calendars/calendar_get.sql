-- Reads calendar ?2 of tenant ?1 with its newest version and its number of jobs.
-- Primary keys: calendars, calendar_versions, calendar_jobs.
select c.name, c.version, c.created_at, c.created_by, c.updated_at, v.spec,
       (select count(*) from calendar_jobs u where u.tenant = c.tenant and u.calendar = c.name) as jobs
  from calendars c
  join calendar_versions v on v.tenant = c.tenant and v.name = c.name and v.version = c.version
 where c.tenant = ?1 and c.name = ?2;
