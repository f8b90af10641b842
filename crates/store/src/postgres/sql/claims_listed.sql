-- Up to $3 rows of open_claims of incarnation $1 after run $2, with their runs; `id` is null where the run is no longer claimed
-- by that incarnation. Payloads are left out. Index: open_claims_incarnation; key: runs (`limit` leaves no other way).
select c.run, c.fence as listed_fence, r.id, r.job, r.tenant, r.cause, r.scheduled_at, r.fence, r.attempt, r.lost, null::text as payload
  from (select run, fence from open_claims where incarnation = $1 and run > $2 order by run limit $3) c
  left join lateral (
        select * from runs where id = c.run and coalesce(state = 1 and incarnation = $1, false) limit 1) r on true
 order by c.run;
