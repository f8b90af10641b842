-- As raise_cursors.sql ($1 job, $2 epoch, $3 cursor, $4 zone data), but also skips jobs whose cursor another session has locked.
-- A unit test in cursors.rs compares the two statements.
with locked as materialized (
    select p.job, nullif(($3::bigint[])[p.place], -1) as cursor, e.zone_data
      from unnest($1::uuid[]) with ordinality as p (job, place)
     cross join lateral (
            select e.zone_data from epochs e where e.job = p.job and e.epoch = ($2::bigint[])[p.place] for key share of e skip locked) e
     cross join lateral (select 1 from cursors c where c.job = p.job for update of c skip locked) c
), raised as (
    update cursors c set next_tick = h.cursor
      from locked h
     where c.job = h.job and h.zone_data <= $4
       and case when c.next_tick is null then false when h.cursor is null then true else c.next_tick < h.cursor end
)
select h.count, case when h.count < cardinality($1) then array(select job from locked) end as jobs
  from (select count(*) as count from locked) h;
