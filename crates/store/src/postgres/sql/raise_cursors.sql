-- Raises the cursors [job, epoch, cursor] of jobs that still have that epoch, which is held meanwhile; lowers none. -1 is the
-- cursor of a job without more ticks. Tells of how many jobs the cursor now is at least as asked, and of which when not of all. A
-- cursor that was planned by newer zone data than $4 stays, and counts as raised: it is a lower bound, and the node has no more
-- to do about it.
-- Passes over jobs that an edit holds. Keys: epochs, cursors; `case` keeps the guard from choosing another index.
with held as materialized (
    select p.job, nullif(($3::bigint[])[p.place], -1) as cursor, e.zone_data
      from unnest($1::uuid[]) with ordinality as p (job, place)
     cross join lateral (
            select e.zone_data from epochs e where e.job = p.job and e.epoch = ($2::bigint[])[p.place] for key share of e skip locked) e
), raised as (
    update cursors c set next_tick = h.cursor
      from held h
     where c.job = h.job and h.zone_data <= $4
       and case when c.next_tick is null then false when h.cursor is null then true else c.next_tick < h.cursor end
)
select h.count, case when h.count < cardinality($1) then array(select job from held) end as jobs
  from (select count(*) as count from held) h;
