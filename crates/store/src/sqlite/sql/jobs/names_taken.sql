-- Lists those of the names ?2 that live jobs of tenant ?1 have. Index: jobs_name, probed once per name.
select j.name
  from json_each(?2) as asked
 cross join jobs j indexed by jobs_name on j.tenant = ?1 and j.name = asked.value and j.deleted_at is null;
