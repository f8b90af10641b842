-- Reads the last $3 skip ranges of each job that begin before its id. Arrays: $1 job, $2 id.
-- Index: skip_ranges_history, backwards.
select asked.place, r.from_tick, r.to_tick
  from unnest($1::uuid[], $2::uuid[]) with ordinality as asked (job, high, place)
 cross join lateral (
        select s.from_tick, s.to_tick
          from skip_ranges s
         where s.job = asked.job and s.id < asked.high
         order by s.id desc
         limit $3) r;
