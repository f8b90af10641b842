-- The ticks of each job [job, from id, to id] that have rows between these ids; none lies before $4, or from $5 on.
-- Index: runs_history, of the days between.
select asked.place, r.scheduled_at
  from unnest($1::uuid[], $2::uuid[], $3::uuid[]) with ordinality as asked (job, low, high, place)
 cross join lateral (
        select r.scheduled_at
          from runs r
         where r.job = asked.job and r.id >= asked.low and r.id < asked.high and r.cause = 1
           and r.id >= $4 and r.id < $5) r;
