-- The open runs of the jobs named in ?1. Indexes: waiting_job; runs_history from the lowest id that a lease has claimed; worker_claims_job.
select r.job, r.id, r.state, r.attempt, r.fence
  from json_each(?1) as asked
 cross join waiting w indexed by waiting_job on w.job = unhex(asked.value)
 cross join runs r on r.id = w.run
union
select r.job, r.id, r.state, r.attempt, r.fence
  from json_each(?1) as asked
 cross join runs r indexed by runs_history
    on r.job = unhex(asked.value) and r.id >= (select min(open_from) from leases) and r.state = 1
union
select r.job, r.id, r.state, r.attempt, r.fence
  from json_each(?1) as asked
 cross join worker_claims c indexed by worker_claims_job on c.job = unhex(asked.value)
 cross join runs r on r.id = c.run and r.state = 1;
