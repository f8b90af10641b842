-- Brings over which jobs name which calendars. Key: calendar_jobs.
insert into calendar_jobs (tenant, calendar, job)
select n.tenant, n.calendar, n.job
  from unnest($1::integer[], $2::text[], $3::uuid[]) as n (tenant, calendar, job);
