-- Lists up to ?3 flows with ids after ?2 and before ?1 whose root is gone and that have no steps, in order of id.
-- Primary keys: flows, runs. Index: flow_steps_flow.
select f.id
  from flows f
 where f.id < ?1 and f.id > ?2
   and not exists (select 1 from runs r where r.id = f.id)
   and not exists (select 1 from flow_steps s where s.flow = f.id)
 order by f.id
 limit ?3;
