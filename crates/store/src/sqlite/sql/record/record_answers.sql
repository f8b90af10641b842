-- Says what recording each tick of ?1 at ?2 would do: 0 insert, 1 recorded already, 2 early, 3 stale.
-- Primary keys: epochs, cursors, runs. ?1 is written as for record.sql.
select case
         when e.epoch is not t.epoch or c.next_tick is null or c.next_tick > t.tick then 3
         when t.tick > ?2 then 2
         when r.id is not null then 1
         else 0
       end as answer
  from (select key as place,
               unhex(substr(value, 1, 32)) as id,
               unhex(substr(value, 33, 32)) as job,
               cast(substr(value, 69, 20) as integer) as tick,
               cast(substr(value, 109) as integer) as epoch
          from json_each(?1) limit -1) as t
  left join epochs e on e.job = t.job
  left join cursors c on c.job = t.job
  left join runs r on r.id = t.id
 order by t.place;
