-- Reads the recorded ticks (cause 1) of each job between two ids. Arrays: $1 job, $2 from id, $3 to id (excluded).
-- Index: runs_history. $4 and $5 are the lowest and the highest of these ids, so that only the days between are read.
select asked.place, r.scheduled_at
  from unnest($1::uuid[], $2::uuid[], $3::uuid[]) with ordinality as asked (job, low, high, place)
 cross join lateral (
        select r.scheduled_at
          from runs r
         where r.job = asked.job and r.id >= asked.low and r.id < asked.high and r.cause = 1
           and r.id >= $4 and r.id < $5) r;
