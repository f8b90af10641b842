-- Removes up to ?3 skip ranges recorded before ?1, with ids below ?2, that their job's cursor has passed.
-- Primary keys: skip_ranges, cursors.
delete from skip_ranges where id in (
    select g.id
      from skip_ranges g
      left join cursors c on c.job = g.job
     where g.id < ?2 and g.recorded_at < ?1 and (c.next_tick is null or g.to_tick < c.next_tick)
     order by g.id
     limit ?3);
