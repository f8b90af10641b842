-- Reads up to $2 worker claims whose lease or timeout has passed at $1. Adds the run if it is still claimed (state 1) under the
-- claim's fence.
-- Leaves out the runs $3 and the jobs $4, which cannot be decoded. Primary keys: runs, epochs.
-- Scans worker_claims, which has one row per run in progress: an index on columns that heartbeats change would cost each of them
-- more.
select everytick_now() as now, c.run, c.worker, c.log, c.queue = '' as accepted, c.timeout_at <= $1 as timed_out,
       r.id, r.job, r.tenant, r.cause, r.scheduled_at, r.fence, r.attempt, r.lost, r.payload, r.started_at, e.epoch
  from (select * from worker_claims where least(until, timeout_at) <= $1 and run <> all($3) and job <> all($4) order by until limit $2) c
  left join runs r on r.id = c.run and r.state = 1 and r.fence = c.fence
  left join epochs e on e.job = r.job;
