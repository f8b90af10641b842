-- Lists up to $3 live jobs of tenant $1 with names after $2, by name. Index: jobs_name.
select id as job, name from jobs where tenant = $1 and deleted_at is null and name > $2 order by name limit $3;
