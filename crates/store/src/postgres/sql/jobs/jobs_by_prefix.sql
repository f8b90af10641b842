-- Lists up to $4 live jobs of tenant $1 with ids from $2 to $3. Primary key: jobs.
select id, name from jobs where id >= $2 and id <= $3 and tenant = $1 and deleted_at is null order by id limit $4;
