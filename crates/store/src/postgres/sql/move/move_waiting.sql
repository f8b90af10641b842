-- Inserts moved waiting rows. Primary key: waiting.
-- Arrays: $1 run, $2 job, $3 tenant, $4 priority, $5 due_at, $6 late, $7 force, $8 attempts, $9 queue, $10 rank, $11 key,
-- $12 partition.
insert into waiting (run, job, tenant, priority, due_at, late, force, attempts, queue, rank, key, partition)
select n.run, n.job, n.tenant, n.priority, n.due_at, n.late, n.force, n.attempts, n.queue, n.rank, n.key, n.partition
  from unnest($1::uuid[], $2::uuid[], $3::integer[], $4::smallint[], $5::bigint[], $6::boolean[], $7::boolean[],
              $8::integer[], $9::text[], $10::bigint[], $11::text[], $12::smallint[])
           as n (run, job, tenant, priority, due_at, late, force, attempts, queue, rank, key, partition);
