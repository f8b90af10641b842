-- Inserts which jobs of tenant ?1 refer to which secrets. ?2 JSON array of [job, secret]. Primary key: secret_jobs.
insert into secret_jobs (tenant, secret, job)
select ?1, n.value ->> 1, unhex(n.value ->> 0) from json_each(?2) as n;
