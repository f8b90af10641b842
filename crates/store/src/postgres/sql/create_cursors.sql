-- Inserts the cursors of the new jobs [id, partition, next_tick] of tenant $4. Key: cursors.
insert into cursors (job, tenant, partition, next_tick)
select n.id, $4, n.partition, n.next_tick
  from unnest($1::uuid[], $2::smallint[], $3::bigint[]) as n (id, partition, next_tick);
