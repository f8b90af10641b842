-- Adds the parents of job $2 of tenant $1. Arrays: $3 parent, $4 when (1 succeeded, 2 failed, 3 finished).
-- Primary key: job_parents.
insert into job_parents (tenant, child, parent, when_ended)
select $1, $2, p.parent, p.when_ended from unnest($3::uuid[], $4::smallint[]) as p (parent, when_ended);
