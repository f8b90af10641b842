-- Inserts the epochs of the new jobs [id, partition, queue, guarded, told] of tenant $3, made at $4. What is not told of has the
-- number 0, which no look for changes begins before. Key: epochs.
insert into epochs (job, tenant, partition, epoch, seq, queue, guarded)
select n.id, $3, n.partition, 1,
       case when n.told then $4::bigint * 2097152 + (nextval('changes_seq') % 1048576) * 2 else 0 end, n.queue, n.guarded
  from unnest($1::uuid[], $2::smallint[], $5::text[], $6::boolean[], $7::boolean[]) as n (id, partition, queue, guarded, told);
