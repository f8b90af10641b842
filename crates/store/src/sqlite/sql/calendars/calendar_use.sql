-- Inserts which jobs of tenant ?1 name which calendars. ?2 JSON array of [job, calendar]. Primary key: calendar_jobs.
insert into calendar_jobs (tenant, calendar, job)
select ?1, n.value ->> 1, unhex(n.value ->> 0) from json_each(?2) as n;
