-- Which of the names in $2 live jobs of tenant $1 have. Index: jobs_name.
select j.name from unnest($2::text[]) as asked (name) join jobs j on j.tenant = $1 and j.name = asked.name and j.deleted_at is null;
