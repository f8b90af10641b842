-- Inserts which jobs of tenant $1 refer to which secrets. Arrays: $2 job, $3 secret. Primary key: secret_jobs.
insert into secret_jobs (tenant, secret, job)
select $1, n.secret, n.job from unnest($2::uuid[], $3::text[]) as n (job, secret);
