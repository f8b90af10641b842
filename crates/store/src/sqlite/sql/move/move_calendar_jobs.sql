-- Reads up to ?1 rows of calendar_jobs after (?2 tenant, ?3 calendar, ?4 job), for a move. Primary key: calendar_jobs.
select tenant, calendar, job
  from calendar_jobs
 where (tenant, calendar, job) > (?2, ?3, ?4)
 order by tenant, calendar, job
 limit ?1;
