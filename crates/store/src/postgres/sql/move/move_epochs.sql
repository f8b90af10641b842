-- Inserts moved epochs, with change numbers of the current time. Primary key: epochs.
-- Arrays: $1 job, $2 tenant, $3 epoch, $4 queue, $5 partition.
insert into epochs (job, tenant, epoch, queue, partition, guarded, seq)
select n.job, n.tenant, n.epoch, n.queue, n.partition, n.queue is not null, everytick_now() * 2097152 + (nextval('changes_seq') % 1048576) * 2
  from unnest($1::uuid[], $2::integer[], $3::bigint[], $4::text[], $5::smallint[])
           as n (job, tenant, epoch, queue, partition);
