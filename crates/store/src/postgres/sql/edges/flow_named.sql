-- Lists the live jobs of tenant $1 with the names $2 or the ids $3. Index: jobs_name. Primary key: jobs.
select j.id, j.name
  from unnest($2::text[]) as asked (name)
 cross join lateral (
        select j.id, j.name from jobs j where j.tenant = $1 and j.name = asked.name and j.deleted_at is null offset 0) j
union
select j.id, j.name from jobs j where j.id = any($3) and j.tenant = $1 and j.deleted_at is null;
