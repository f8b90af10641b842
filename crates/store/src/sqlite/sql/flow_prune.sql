-- Removes up to ?2 flows with ids before ?1 of which no run is left. Keys: flows, runs.
delete from flows where id in (
    select f.id
      from flows f
     where f.id < ?1
       and not exists (select 1 from runs r where r.id = f.id)
       and not exists (select 1
                         from runs r
                        where r.id >= substr(f.id, 1, 6) and r.id < cast(substr(f.id, 1, 6) || x'ff' as blob) and r.flow = f.id)
       and not exists (select 1 from flow_steps s where s.flow = f.id)
     order by f.id
     limit ?2);
