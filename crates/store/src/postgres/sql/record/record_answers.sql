-- Explains why ticks were not inserted at $5: 1 recorded already, 2 early, 3 stale (or an edit has locked the job).
-- Primary keys: epochs, cursors, runs. Arrays: $1 id, $2 job, $3 epoch, $4 tick.
select case
         when e.epoch is distinct from t.epoch or c.next_tick is null or c.next_tick > t.tick then 3
         when t.tick > $5 then 2
         when r.id is not null then 1
         else 3
       end::smallint as answer
  from unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::bigint[]) with ordinality as t (id, job, epoch, tick, place)
  left join epochs e on e.job = t.job
  left join cursors c on c.job = t.job
  left join runs r on r.id = t.id
 order by t.place;
