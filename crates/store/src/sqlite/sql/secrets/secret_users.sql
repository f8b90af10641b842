-- Lists up to ?3 jobs that refer to secret ?2 of tenant ?1. Primary keys: secret_jobs, jobs.
select u.job, coalesce(j.name, '') as name
  from secret_jobs u
  left join jobs j on j.id = u.job
 where u.tenant = ?1 and u.secret = ?2
 order by u.job
 limit ?3;
