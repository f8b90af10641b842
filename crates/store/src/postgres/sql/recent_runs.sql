-- Of each job [job, low] its last tick with a row from `low` on, and whether one of its runs from $3 on is claimed. Neither
-- lies before $4, and none has a higher id than $5. Index: runs_history of the days between.
select asked.job, r.last_tick, r.claimed
  from unnest($1::uuid[], $2::uuid[]) as asked (job, low)
 cross join lateral (
        select max(r.scheduled_at) filter (where r.cause = 1 and r.id >= asked.low) as last_tick,
               coalesce(bool_or(r.state = 1 and r.id >= $3), false) as claimed
          from runs r
         where r.job = asked.job and r.id >= least(asked.low, $3) and r.id >= $4 and r.id <= $5) r
 where r.last_tick is not null or r.claimed;
