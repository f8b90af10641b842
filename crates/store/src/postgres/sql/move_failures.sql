-- Brings failures over. Key: failures.
insert into failures (tenant, run, job, error_hash)
select * from unnest($1::integer[], $2::uuid[], $3::uuid[], $4::bigint[]);
