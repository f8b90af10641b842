-- Reads the lowest cursor of all jobs that tick. Index: cursors_next, probed once per partition.
select min(c.next_tick)
  from generate_series(0, 255) as p (partition)
 cross join lateral (
        select c.next_tick
          from cursors c
         where c.partition = p.partition and c.next_tick is not null
         order by c.next_tick
         limit 1) c;
