-- Moves claims of incarnation $1 to the receivers that accepted the work and report later.
-- Primary keys: the day's table, worker_claims. Arrays: $2 run, $3 fence, $4 worker, $5 timeout_at, $6 previous (overlap policy
-- cancel_previous). Only runs that this incarnation has claimed (state 1) under that fence change.
-- From then on the claim lives by its worker_claims row, with queue ''.
-- `any (array[...])` leaves the planner no way but the key. Returns the runs that changed.
with taken as (
    update runs_of_the_day r
       set incarnation = '00000000-0000-0000-0000-000000000000', worker = s.worker
      from unnest($2::uuid[], $3::bigint[], $4::text[], $5::bigint[], $6::boolean[])
               as s (id, fence, worker, timeout_at, previous)
     where r.id = any (array[s.id]) and r.state = 1 and r.fence = s.fence and r.incarnation = $1
    returning r.id, r.job, r.tenant, r.fence, s.worker, s.timeout_at, s.previous
)
insert into worker_claims as c (run, job, tenant, queue, worker, fence, until, timeout_at, previous)
select t.id, t.job, t.tenant, '', t.worker, t.fence, t.timeout_at, t.timeout_at, t.previous from taken t
on conflict (run) do update
   set queue = '', worker = excluded.worker, fence = excluded.fence, until = excluded.until, timeout_at = excluded.timeout_at,
       previous = excluded.previous, key = null, log = null
returning c.run;
