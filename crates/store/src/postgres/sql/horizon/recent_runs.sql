-- Reads for each job its last tick (cause 1) with an id from `low` on, and whether it has a claimed run (state 1) from id $3 on.
-- Arrays: $1 job, $2 low. Index: runs_history. $4 is the lowest and $5 the highest of all these ids, so that only the days
-- between are read.
select asked.job, r.last_tick, r.claimed
  from unnest($1::uuid[], $2::uuid[]) as asked (job, low)
 cross join lateral (
        select max(r.scheduled_at) filter (where r.cause = 1 and r.id >= asked.low) as last_tick,
               coalesce(bool_or(r.state = 1 and r.id >= $3), false) as claimed
          from runs r
         where r.job = asked.job and r.id >= least(asked.low, $3) and r.id >= $4 and r.id <= $5) r
 where r.last_tick is not null or r.claimed;
