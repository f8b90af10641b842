-- Up to $2 live jobs after $1, in order, with what their schedules are made of. Key: jobs.
select id, name, spec from jobs where id > $1 and deleted_at is null order by id limit $2;
