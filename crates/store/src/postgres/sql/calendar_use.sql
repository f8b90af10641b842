-- The jobs [job, calendar] name these calendars of tenant $1. Key: calendar_jobs.
insert into calendar_jobs (tenant, calendar, job)
select $1, n.calendar, n.job from unnest($2::uuid[], $3::text[]) as n (job, calendar);
