-- Notes the claims [run, job, fence, timeout_at, previous] of ?1 by worker ?4 on queue ?3 of tenant ?2, until ?5, with the keys
-- under which they waited. Keys: waiting, worker_claims.
insert into worker_claims (run, job, tenant, queue, worker, fence, until, timeout_at, key, previous)
select unhex(n.value ->> 0), unhex(n.value ->> 1), ?2, ?3, ?4, n.value ->> 2, ?5, n.value ->> 3,
       (select w.key from waiting w where w.run = unhex(n.value ->> 0)), n.value ->> 4
  from json_each(?1) as n;
