-- Inserts moved calendar_jobs: which jobs name which calendars. Arrays: $1 tenant, $2 calendar, $3 job.
-- Primary key: calendar_jobs.
insert into calendar_jobs (tenant, calendar, job)
select n.tenant, n.calendar, n.job
  from unnest($1::integer[], $2::text[], $3::uuid[]) as n (tenant, calendar, job);
