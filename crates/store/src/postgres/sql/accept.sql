-- Hands the claims [run, fence, worker, timeout_at, previous] of incarnation $1 over to their receivers, where that incarnation has
-- them under that fence: from then on they live by a row in worker_claims, without a queue. Keys: the day's, worker_claims; `any`
-- leaves no way but the key.
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
