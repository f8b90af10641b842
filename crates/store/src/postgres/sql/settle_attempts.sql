-- Keeps attempts that ended without ending their run. Key: attempts.
insert into attempts (run, attempt, fence, node, started_at, finished_at, outcome, error, output, worker)
select * from unnest($1::uuid[], $2::integer[], $3::bigint[], $4::text[], $5::bigint[], $6::bigint[], $7::text[], $8::text[], $9::text[], $10::text[])
on conflict (run, attempt) do nothing;
