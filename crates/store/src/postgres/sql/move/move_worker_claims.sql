-- Inserts moved worker claims. Primary key: worker_claims.
-- Arrays: $1 run, $2 job, $3 tenant, $4 queue, $5 worker, $6 fence, $7 until, $8 timeout_at, $9 key, $10 log, $11 previous.
insert into worker_claims (run, job, tenant, queue, worker, fence, until, timeout_at, key, log, previous)
select n.run, n.job, n.tenant, n.queue, n.worker, n.fence, n.until, n.timeout_at, n.key, n.log, n.previous
  from unnest($1::uuid[], $2::uuid[], $3::integer[], $4::text[], $5::text[], $6::bigint[], $7::bigint[], $8::bigint[],
              $9::text[], $10::text[], $11::boolean[])
           as n (run, job, tenant, queue, worker, fence, until, timeout_at, key, log, previous);
