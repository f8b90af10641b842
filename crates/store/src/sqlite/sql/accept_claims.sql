-- Notes the claims [run, fence, worker, timeout_at, previous] of ?1, which receivers hold from now on, without a queue. Keys: runs,
-- worker_claims.
insert into worker_claims (run, job, tenant, queue, worker, fence, until, timeout_at, previous)
select r.id, r.job, r.tenant, '', s.value ->> 2, s.value ->> 1, s.value ->> 3, s.value ->> 3, s.value ->> 4
  from json_each(?1) as s
 cross join runs r on r.id = unhex(s.value ->> 0)
 where true
on conflict (run) do update
   set queue = '', worker = excluded.worker, fence = excluded.fence, until = excluded.until, timeout_at = excluded.timeout_at,
       previous = excluded.previous, key = null, log = null;
