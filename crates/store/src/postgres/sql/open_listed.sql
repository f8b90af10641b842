-- The claimed runs of the jobs named in $1 that open_claims lists. Index: open_claims_job; key: runs (`limit` leaves no other way).
select r.job, r.id, r.state, r.attempt, r.fence
  from open_claims c
 cross join lateral (
        select * from runs where id = c.run and coalesce(state = 1 and incarnation = c.incarnation, false) limit 1) r
 where c.job = any($1);
