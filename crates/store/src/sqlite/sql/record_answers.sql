-- Says of each tick in ?1 what recording it at ?2 would do: 0 insert, 1 there already, 2 early, 3 stale.
-- Keys: epochs, cursors, runs.
select case
         when e.epoch is not t.value ->> 2 or c.next_tick is null or c.next_tick > t.value ->> 3 then 3
         when t.value ->> 3 > ?2 then 2
         when r.id is not null then 1
         else 0
       end as answer
  from json_each(?1) as t
  left join epochs e on e.job = unhex(t.value ->> 1)
  left join cursors c on c.job = unhex(t.value ->> 1)
  left join runs r on r.id = unhex(t.value ->> 0)
 order by t.key;
