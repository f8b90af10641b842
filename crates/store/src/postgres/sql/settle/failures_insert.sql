-- Adds failed runs to failures. Arrays: $1 run, $2 tenant, $3 job, $4 error_hash. Primary key: failures.
insert into failures (run, tenant, job, error_hash)
select * from unnest($1::uuid[], $2::integer[], $3::uuid[], $4::bigint[])
    on conflict do nothing;
