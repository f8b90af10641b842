-- Brings worker_claims over. Key: worker_claims.
insert into worker_claims (run, job, tenant, queue, worker, fence, until, timeout_at, key, log, previous)
select n.run, n.job, n.tenant, n.queue, n.worker, n.fence, n.until, n.timeout_at, n.key, n.log, n.previous
  from unnest($1::uuid[], $2::uuid[], $3::integer[], $4::text[], $5::text[], $6::bigint[], $7::bigint[], $8::bigint[],
              $9::text[], $10::text[], $11::boolean[])
           as n (run, job, tenant, queue, worker, fence, until, timeout_at, key, log, previous);
