-- The jobs [job, calendar] of ?2 name these calendars of tenant ?1. Key: calendar_jobs.
insert into calendar_jobs (tenant, calendar, job)
select ?1, n.value ->> 1, unhex(n.value ->> 0) from json_each(?2) as n;
