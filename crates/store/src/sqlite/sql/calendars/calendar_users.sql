-- Lists the jobs that name calendar ?2 of tenant ?1. Primary keys: calendar_jobs, jobs.
select u.job, coalesce(j.name, '') as name
  from calendar_jobs u
  left join jobs j on j.id = u.job
 where u.tenant = ?1 and u.calendar = ?2
 order by u.job;
