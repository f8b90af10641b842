-- Adds the runs $1, which nodes of the source had claimed (state 1), to open_claims. Primary keys: runs, open_claims.
insert into open_claims (run, job, tenant, incarnation, fence)
select id, job, tenant, incarnation, fence from runs where id = any($1) and state = 1
on conflict (run) do nothing;
