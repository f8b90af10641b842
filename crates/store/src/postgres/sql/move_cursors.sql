-- Brings cursors over. Key: cursors.
insert into cursors (job, tenant, next_tick, partition)
select n.job, n.tenant, n.next_tick, n.partition
  from unnest($1::uuid[], $2::integer[], $3::bigint[], $4::smallint[])
           as n (job, tenant, next_tick, partition);
