-- Raises cursors of jobs that still have the planned epoch; lowers none. Arrays: $1 job, $2 epoch, $3 cursor (-1: no more ticks).
-- Primary keys: epochs, cursors. Lock order: epochs (key share), then cursors. Skips jobs that an edit has locked.
-- Returns how many jobs have that epoch: their cursor is now at least the given one. If not all have it, also returns which.
-- A cursor planned with newer zone data than $4 stays and counts as raised: it is a lower bound, and this node has nothing more
-- to do for it. `case` keeps the guard from choosing another index.
with locked as materialized (
    select p.job, nullif(($3::bigint[])[p.place], -1) as cursor, e.zone_data
      from unnest($1::uuid[]) with ordinality as p (job, place)
     cross join lateral (
            select e.zone_data from epochs e where e.job = p.job and e.epoch = ($2::bigint[])[p.place] for key share of e skip locked) e
), raised as (
    update cursors c set next_tick = h.cursor
      from locked h
     where c.job = h.job and h.zone_data <= $4
       and case when c.next_tick is null then false when h.cursor is null then true else c.next_tick < h.cursor end
)
select h.count, case when h.count < cardinality($1) then array(select job from locked) end as jobs
  from (select count(*) as count from locked) h;
