-- Up to $2 claims whose lease or time ran out at $1, with their runs where those are still claimed under the same fence; not those
-- of the runs $3 and the jobs $4, which cannot be decoded. Scans
-- worker_claims, which are as many as runs are being worked on: an index on what beats change would cost each beat more.
select c.run, c.worker, c.log, c.queue = '' as accepted, c.timeout_at <= $1 as timed_out,
       r.id, r.job, r.tenant, r.cause, r.scheduled_at, r.fence, r.attempt, r.lost, r.payload, r.started_at, e.epoch
  from (select * from worker_claims where least(until, timeout_at) <= $1 and run <> all($3) and job <> all($4) order by until limit $2) c
  left join runs r on r.id = c.run and r.state = 1 and r.fence = c.fence
  left join epochs e on e.job = r.job;
