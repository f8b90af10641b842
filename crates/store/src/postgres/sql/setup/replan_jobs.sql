-- Reads up to $2 live jobs after id $1, in order of id, with their definitions. Primary key: jobs.
select id, name, spec from jobs where id > $1 and deleted_at is null order by id limit $2;
