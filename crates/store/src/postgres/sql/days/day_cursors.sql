-- Whether a cursor lies before $1. Index: cursors_next, probed once per partition.
select exists (
    select 1
      from generate_series(0, 255) as p (partition)
     cross join lateral (select 1 from cursors c where c.partition = p.partition and c.next_tick < $1 limit 1) c);
