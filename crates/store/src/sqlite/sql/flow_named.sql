-- The live jobs of tenant ?1 that are called by the names of ?2 or the ids of ?3. Index: jobs_name; key: jobs.
select j.id, j.name
  from json_each(?2) as asked
 cross join jobs j indexed by jobs_name on j.tenant = ?1 and j.name = asked.value and j.deleted_at is null
union
select j.id, j.name
  from json_each(?3) as asked
 cross join jobs j on j.id = unhex(asked.value) and j.tenant = ?1 and j.deleted_at is null;
