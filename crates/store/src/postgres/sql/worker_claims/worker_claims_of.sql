-- Reads those of the runs $2 of tenant $1 that workers have claimed (state 1), with their logs and the epochs of their jobs.
-- Primary keys: worker_claims, runs, epochs. `limit` and `coalesce` leave the planner no other way: a tenant has many claims, and
-- under load more dead than live versions of them.
select everytick_now() as now, c.log, c.queue = '' as accepted, r.id, r.job, r.tenant, r.cause, r.scheduled_at, r.fence, r.attempt, r.lost, r.payload, r.started_at,
       (select e.epoch from epochs e where e.job = r.job) as epoch
  from unnest($2::uuid[]) as asked (run)
 cross join lateral (
        select fence, log, queue from worker_claims where run = asked.run and coalesce(tenant = $1, false) limit 1) c
 cross join lateral (
        select * from runs where id = asked.run and coalesce(state = 1 and fence = c.fence, false) limit 1) r;
