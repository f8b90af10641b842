-- Inserts moved failures. Arrays: $1 tenant, $2 run, $3 job, $4 error_hash. Primary key: failures.
insert into failures (tenant, run, job, error_hash)
select * from unnest($1::integer[], $2::uuid[], $3::uuid[], $4::bigint[]);
