-- Inserts worker_claims rows, with queue '', for claims that receivers have accepted. Primary keys: runs, worker_claims.
-- ?1 JSON array of [run, fence, worker, timeout_at, previous (overlap policy cancel_previous)].
insert into worker_claims (run, job, tenant, queue, worker, fence, until, timeout_at, previous)
select r.id, r.job, r.tenant, '', s.value ->> 2, s.value ->> 1, s.value ->> 3, s.value ->> 3, s.value ->> 4
  from json_each(?1) as s
 cross join runs r on r.id = unhex(s.value ->> 0)
 where true
on conflict (run) do update
   set queue = '', worker = excluded.worker, fence = excluded.fence, until = excluded.until, timeout_at = excluded.timeout_at,
       previous = excluded.previous, key = null, log = null;
