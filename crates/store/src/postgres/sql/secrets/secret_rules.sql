-- Reads the rules of the secrets $2 of tenant $1. Primary key: secrets.
select s.name, s.version, s.hosts, s.kinds, s.previous_until
  from secrets s
 where s.tenant = $1 and s.name = any($2)
 order by s.name;
