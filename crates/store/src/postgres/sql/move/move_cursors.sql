-- Inserts moved cursors. Arrays: $1 job, $2 tenant, $3 next_tick, $4 partition. Primary key: cursors.
insert into cursors (job, tenant, next_tick, partition)
select n.job, n.tenant, n.next_tick, n.partition
  from unnest($1::uuid[], $2::integer[], $3::bigint[], $4::smallint[])
           as n (job, tenant, next_tick, partition);
