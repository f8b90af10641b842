-- Raises the cursors [job, epoch, cursor] of jobs that still have that epoch, which is held meanwhile; lowers none. Gives the
-- jobs whose cursor now is at least as asked. Passes over jobs that an edit holds. Keys: epochs, cursors; `case` keeps the guard from
-- choosing another index.
with held as materialized (
    select t.job, t.cursor
      from unnest($1::uuid[], $2::bigint[], $3::bigint[]) as t (job, epoch, cursor)
      join epochs e on e.job = t.job and e.epoch = t.epoch
     order by t.job
       for key share of e skip locked
), raised as (
    update cursors c set next_tick = h.cursor
      from held h
     where c.job = h.job
       and case when c.next_tick is null then false when h.cursor is null then true else c.next_tick < h.cursor end
)
select job from held;
