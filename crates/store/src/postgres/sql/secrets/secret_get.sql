-- Reads secret $2 of tenant $1 without its value, with its number of jobs. Primary keys: secrets, secret_jobs.
select s.name, s.version, s.hosts, s.kinds, s.description, s.created_at, s.created_by, s.updated_at, s.updated_by, s.previous_until,
       (select count(*) from secret_jobs u where u.tenant = s.tenant and u.secret = s.name) as jobs
  from secrets s
 where s.tenant = $1 and s.name = $2;
