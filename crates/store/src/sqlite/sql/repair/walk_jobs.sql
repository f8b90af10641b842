-- Lists the ids of up to ?2 live jobs after id ?1, in order of id. Primary key: jobs.
select id from jobs where id > ?1 and deleted_at is null order by id limit ?2;
