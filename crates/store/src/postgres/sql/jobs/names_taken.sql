-- Lists those of the names $2 that live jobs of tenant $1 have. Index: jobs_name, probed once per name.
-- `lateral` and `offset 0` keep the planner from reading all jobs of the tenant, which may have many more.
select j.name
  from unnest($2::text[]) as asked (name)
 cross join lateral (
        select j.name from jobs j where j.tenant = $1 and j.name = asked.name and j.deleted_at is null offset 0) j;
