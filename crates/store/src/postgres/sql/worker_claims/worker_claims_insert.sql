-- Inserts claims of worker $9 on runs of queue $8 of tenant $7, valid until $10. Primary key: worker_claims.
-- Arrays: $1 run, $2 job, $3 fence, $4 timeout_at, $5 key, $6 previous (overlap policy cancel_previous).
insert into worker_claims (run, job, tenant, queue, worker, fence, until, timeout_at, key, previous)
select n.run, n.job, $7, $8, $9, n.fence, $10, n.timeout_at, n.key, n.previous
  from unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::bigint[], $5::text[], $6::boolean[])
           as n (run, job, fence, timeout_at, key, previous);
