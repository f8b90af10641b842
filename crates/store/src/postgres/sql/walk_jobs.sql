-- The ids of up to $2 jobs after $1 that are not deleted. Key: jobs.
select id from jobs where id > $1 and deleted_at is null order by id limit $2;
