-- Adds the parents of job ?2 of tenant ?1. Primary key: job_parents.
-- ?3 JSON array of [parent, when (1 succeeded, 2 failed, 3 finished)].
insert into job_parents (tenant, child, parent, when_ended)
select ?1, ?2, unhex(p.value ->> 0), p.value ->> 1 from json_each(?3) as p;
