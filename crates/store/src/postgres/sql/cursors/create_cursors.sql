-- Inserts the cursors of new jobs of tenant $4. Arrays: $1 job, $2 partition, $3 next_tick. Primary key: cursors.
insert into cursors (job, tenant, partition, next_tick)
select n.id, $4, n.partition, n.next_tick
  from unnest($1::uuid[], $2::smallint[], $3::bigint[]) as n (id, partition, next_tick);
