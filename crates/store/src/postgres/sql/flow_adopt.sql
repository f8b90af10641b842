-- Job $2 of tenant $1 follows the jobs [parent, when] from here on. Key: job_parents.
insert into job_parents (tenant, child, parent, when_ended)
select $1, $2, p.parent, p.when_ended from unnest($3::uuid[], $4::smallint[]) as p (parent, when_ended);
