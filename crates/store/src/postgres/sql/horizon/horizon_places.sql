-- Reads the first $5 cursors of each of the partitions $1 that lie before $2 and after ($3 next_tick, $4 job).
-- Index: cursors_next. Returns one row of arrays: a full horizon has many cursors, and one row each would cost the client more
-- time than the server.
select coalesce(array_agg(p.partition), '{}') as partitions, coalesce(array_agg(c.next_tick), '{}') as ticks,
       coalesce(array_agg(c.job), '{}') as jobs
  from unnest($1::smallint[]) as p (partition)
 cross join lateral (
        select c.next_tick, c.job
          from cursors c
         where c.partition = p.partition and c.next_tick < $2 and (c.next_tick, c.job) > ($3, $4)
         order by c.next_tick, c.job
         limit $5) c;
