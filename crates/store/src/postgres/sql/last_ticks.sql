-- The last tick of each job [job, id] with a row from that id on; none lies before $3, and of $4 and later we know nothing.
-- Index: runs_history, backwards, of the days between.
select asked.job, r.scheduled_at
  from unnest($1::uuid[], $2::uuid[]) as asked (job, low)
 cross join lateral (
        select r.scheduled_at
          from runs r
         where r.job = asked.job and r.id >= asked.low and r.cause = 1 and r.id >= $3 and r.id < $4
         order by r.id desc
         limit 1) r;
