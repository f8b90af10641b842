-- Up to ?1 rows behind the key (?2, ?3, ?4). Key: calendar_jobs.
select tenant, calendar, job
  from calendar_jobs
 where (tenant, calendar, job) > (?2, ?3, ?4)
 order by tenant, calendar, job
 limit ?1;
