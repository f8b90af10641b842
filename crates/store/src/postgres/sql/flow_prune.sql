-- Removes up to $2 flows with ids before $1 of which no run is left. Runs of a flow have the time of its id in theirs. A scalar
-- subquery, because `not exists` may become a join with all runs. Keys: flows, runs.
delete from flows where id in (
    select f.id
      from flows f
     where f.id < $1
       and not exists (select 1 from runs r where r.id = f.id)
       and coalesce((select false
                       from runs r
                      where r.id >= (left(f.id::text, 13) || '-0000-0000-000000000000')::uuid
                        and r.id <= (left(f.id::text, 13) || '-ffff-ffff-ffffffffffff')::uuid
                        and r.flow = f.id
                      limit 1), true)
       and not exists (select 1 from flow_steps s where s.flow = f.id)
     order by f.id
     limit $2);
