-- Reads the rules of the secrets ?2 of tenant ?1. Primary key: secrets.
select s.name, s.version, s.hosts, s.kinds, s.previous_until
  from json_each(?2) as asked
 cross join secrets s on s.tenant = ?1 and s.name = asked.value
 order by s.name;
