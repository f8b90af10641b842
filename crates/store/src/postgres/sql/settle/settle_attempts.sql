-- Inserts attempts after which their runs wait again. Primary key: attempts.
-- Arrays: $1 run, $2 attempt, $3 fence, $4 node, $5 started_at, $6 finished_at, $7 outcome, $8 error, $9 output, $10 worker, $11 tenant.
insert into attempts (run, attempt, fence, node, started_at, finished_at, outcome, error, output, worker, tenant)
select * from unnest($1::uuid[], $2::integer[], $3::bigint[], $4::text[], $5::bigint[], $6::bigint[], $7::text[], $8::text[], $9::text[], $10::text[], $11::integer[])
on conflict (run, attempt) do nothing;
