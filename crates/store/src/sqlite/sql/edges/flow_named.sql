-- Lists the live jobs of tenant ?1 with the names ?2 or the ids ?3. Index: jobs_name. Primary key: jobs.
select j.id, j.name
  from json_each(?2) as asked
 cross join jobs j indexed by jobs_name on j.tenant = ?1 and j.name = asked.value and j.deleted_at is null
union
select j.id, j.name
  from json_each(?3) as asked
 cross join jobs j on j.id = unhex(asked.value) and j.tenant = ?1 and j.deleted_at is null;
