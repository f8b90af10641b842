-- Lists up to $3 rows of open_claims of incarnation $1 after run $2, with their runs, without payloads.
-- Index: open_claims_incarnation. Primary key: runs (`limit` leaves the planner no other way).
-- `id` is null if that incarnation no longer has the run claimed (state 1): the row is stale.
select c.run, c.fence as listed_fence, r.id, r.job, r.tenant, r.cause, r.scheduled_at, r.fence, r.attempt, r.lost, null::text as payload
  from (select run, fence from open_claims where incarnation = $1 and run > $2 order by run limit $3) c
  left join lateral (
        select * from runs where id = c.run and coalesce(state = 1 and incarnation = $1, false) limit 1) r on true
 order by c.run;
