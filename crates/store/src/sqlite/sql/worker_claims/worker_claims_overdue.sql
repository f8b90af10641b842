-- Reads up to ?2 worker claims whose lease or timeout has passed at ?1.
-- Returns those whose run is still claimed (state 1) under the claim's fence, with the run.
-- Leaves out the runs ?3 and the jobs ?4, which cannot be decoded. Primary key: runs.
-- Scans worker_claims, which has one row per run in progress.
select claim.worker, claim.log, claim.queue = '' as accepted, claim.timeout_at <= ?1 as timed_out,
       r.id, r.job, r.tenant, r.cause, r.scheduled_at, r.fence, r.attempt, r.lost, r.payload, r.started_at
  from (select * from worker_claims where min(until, timeout_at) <= ?1
           and run not in (select unhex(value) from json_each(?3)) and job not in (select unhex(value) from json_each(?4))
         order by until limit ?2) as claim
 cross join runs r on r.id = claim.run and r.state = 1 and r.fence = claim.fence;
