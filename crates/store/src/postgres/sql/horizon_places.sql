-- The first $5 cursors of each partition named in $1 that lie before $2, from ($3, $4) on. One row: looks at a full
-- horizon read many, and a row each would take the client longer than the server. Index: cursors_next.
select coalesce(array_agg(p.partition), '{}') as partitions, coalesce(array_agg(c.next_tick), '{}') as ticks,
       coalesce(array_agg(c.job), '{}') as jobs
  from unnest($1::smallint[]) as p (partition)
 cross join lateral (
        select c.next_tick, c.job
          from cursors c
         where c.partition = p.partition and c.next_tick < $2 and (c.next_tick, c.job) > ($3, $4)
         order by c.next_tick, c.job
         limit $5) c;
