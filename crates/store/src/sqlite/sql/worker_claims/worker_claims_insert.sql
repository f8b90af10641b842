-- Inserts claims of worker ?4 on runs of queue ?3 of tenant ?2, valid until ?5. Primary keys: waiting, worker_claims.
-- ?1 JSON array of [run, job, fence, timeout_at, previous (overlap policy cancel_previous)].
-- The concurrency keys come from waiting.
insert into worker_claims (run, job, tenant, queue, worker, fence, until, timeout_at, key, previous)
select unhex(n.value ->> 0), unhex(n.value ->> 1), ?2, ?3, ?4, n.value ->> 2, ?5, n.value ->> 3,
       (select w.key from waiting w where w.run = unhex(n.value ->> 0)), n.value ->> 4
  from json_each(?1) as n;
