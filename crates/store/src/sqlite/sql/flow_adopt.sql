-- Job ?2 of tenant ?1 follows the jobs [parent, when] of ?3 from here on. Key: job_parents.
insert into job_parents (tenant, child, parent, when_ended)
select ?1, ?2, unhex(p.value ->> 0), p.value ->> 1 from json_each(?3) as p;
