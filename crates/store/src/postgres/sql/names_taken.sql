-- Which of the names in $2 live jobs of tenant $1 have. Index: jobs_name, once a name: the tenant may have many more.
select j.name
  from unnest($2::text[]) as asked (name)
 cross join lateral (
        select j.name from jobs j where j.tenant = $1 and j.name = asked.name and j.deleted_at is null offset 0) j;
