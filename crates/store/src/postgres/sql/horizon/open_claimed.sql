-- Lists the claimed runs (state 1) of the jobs $1 with ids from $2 to before $3. Index: runs_history.
-- $2 is the lowest open_from of all leases; open_listed.sql reads the older claims.
select r.job, r.id, r.state, r.attempt, r.fence
  from unnest($1::uuid[]) as asked (job)
 cross join lateral (
        select r.job, r.id, r.state, r.attempt, r.fence
          from runs r
         where r.job = asked.job and r.id >= $2 and r.id < $3 and r.state = 1
        offset 0) r;
