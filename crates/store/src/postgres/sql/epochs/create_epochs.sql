-- Inserts the epochs of new jobs of tenant $3, created at $4. Primary key: epochs.
-- Arrays: $1 job, $2 partition, $5 queue, $6 guarded (a claim must read the job's other runs), $7 announced (as a change).
-- A job that is not announced gets change number 0, below every poll: the horizon load finds it in time.
insert into epochs (job, tenant, partition, epoch, seq, queue, guarded)
select n.id, $3, n.partition, 1,
       case when n.announced then $4::bigint * 2097152 + (nextval('changes_seq') % 1048576) * 2 else 0 end, n.queue, n.guarded
  from unnest($1::uuid[], $2::smallint[], $5::text[], $6::boolean[], $7::boolean[]) as n (id, partition, queue, guarded, announced);
