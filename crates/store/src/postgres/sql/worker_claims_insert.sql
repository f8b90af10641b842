-- Notes the claims [run, job, fence, timeout_at, key] of worker $8 on queue $7 of tenant $6, until $9. Key: worker_claims.
insert into worker_claims (run, job, tenant, queue, worker, fence, until, timeout_at, key)
select n.run, n.job, $6, $7, $8, n.fence, $9, n.timeout_at, n.key
  from unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::bigint[], $5::text[]) as n (run, job, fence, timeout_at, key);
