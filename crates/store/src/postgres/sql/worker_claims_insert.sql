-- Notes the claims [run, job, fence, timeout_at, key, previous] of worker $9 on queue $8 of tenant $7, until $10. Key: worker_claims.
insert into worker_claims (run, job, tenant, queue, worker, fence, until, timeout_at, key, previous)
select n.run, n.job, $7, $8, $9, n.fence, $10, n.timeout_at, n.key, n.previous
  from unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::bigint[], $5::text[], $6::boolean[])
           as n (run, job, fence, timeout_at, key, previous);
