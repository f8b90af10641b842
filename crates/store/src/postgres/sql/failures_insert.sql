-- Lists the failed runs [run, tenant, job, error_hash]. Key: failures.
insert into failures (run, tenant, job, error_hash)
select * from unnest($1::uuid[], $2::integer[], $3::uuid[], $4::bigint[])
    on conflict do nothing;
