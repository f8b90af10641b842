-- Inserts which jobs of tenant $1 name which calendars. Arrays: $2 job, $3 calendar. Primary key: calendar_jobs.
insert into calendar_jobs (tenant, calendar, job)
select $1, n.calendar, n.job from unnest($2::uuid[], $3::text[]) as n (job, calendar);
