-- The claimed runs of the jobs named in $1, from $2, the lowest id that a lease has claimed, to $3. Index: runs_history.
select r.job, r.id, r.state, r.attempt, r.fence
  from unnest($1::uuid[]) as asked (job)
 cross join lateral (
        select r.job, r.id, r.state, r.attempt, r.fence
          from runs r
         where r.job = asked.job and r.id >= $2 and r.id < $3 and r.state = 1
        offset 0) r;
