-- Lists up to ?3 secrets of tenant ?1 after name ?2, by name, without values. Primary keys: secrets, secret_jobs.
select s.name, s.version, s.hosts, s.kinds, s.description, s.created_at, s.created_by, s.updated_at, s.updated_by, s.previous_until,
       (select count(*) from secret_jobs u where u.tenant = s.tenant and u.secret = s.name) as jobs
  from secrets s
 where s.tenant = ?1 and s.name > ?2
 order by s.name
 limit ?3;
