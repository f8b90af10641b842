-- Raises cursors of jobs that still have the planned epoch; lowers none. Primary keys: epochs, cursors.
-- ?1 JSON array of [job, epoch, cursor (null: no more ticks)].
-- An insert fixes the join order. An `update ... from` would scan all cursors if the statistics are those of an empty table.
insert into cursors (job, tenant, partition, next_tick)
select c.job, c.tenant, c.partition, u.cursor
  from (select unhex(value ->> 0) as job, value ->> 1 as epoch, value ->> 2 as cursor from json_each(?1) limit -1) as u
 cross join epochs e on e.job = u.job and e.epoch = u.epoch
 cross join cursors c on c.job = u.job
 where c.next_tick is not null and (u.cursor is null or c.next_tick < u.cursor)
on conflict (job) do update set next_tick = excluded.next_tick;
