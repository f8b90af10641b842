-- Reads those of the runs ?2 of tenant ?1 that workers have claimed (state 1), with their logs.
-- Primary keys: worker_claims, runs.
select c.log, c.queue = '' as accepted, r.id, r.job, r.tenant, r.cause, r.scheduled_at, r.fence, r.attempt, r.lost, r.payload, r.started_at
  from json_each(?2) as asked
 cross join worker_claims c on c.run = unhex(asked.value) and c.tenant = ?1
 cross join runs r on r.id = c.run and r.state = 1 and r.fence = c.fence;
