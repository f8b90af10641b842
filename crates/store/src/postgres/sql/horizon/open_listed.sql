-- Lists the claimed runs (state 1) of the jobs $1 that open_claims lists. Index: open_claims_job.
-- Primary key: runs (`limit` leaves the planner no other way).
select r.job, r.id, r.state, r.attempt, r.fence
  from open_claims c
 cross join lateral (
        select * from runs where id = c.run and coalesce(state = 1 and incarnation = c.incarnation, false) limit 1) r
 where c.job = any($1);
