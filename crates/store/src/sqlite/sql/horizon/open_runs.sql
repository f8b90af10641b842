-- Lists the claimed runs (state 1) of the jobs ?1. Indexes: runs_history, open_claims_job, worker_claims_job. Primary key: runs.
-- Reads the history from the lowest open_from of all leases on; open_claims has the older claims.
select r.job, r.id, r.state, r.attempt, r.fence
  from json_each(?1) as asked
 cross join runs r indexed by runs_history
    on r.job = unhex(asked.value) and r.id >= (select min(open_from) from leases) and r.state = 1
union
select r.job, r.id, r.state, r.attempt, r.fence
  from json_each(?1) as asked
 cross join open_claims c indexed by open_claims_job on c.job = unhex(asked.value)
 cross join runs r on r.id = c.run and r.state = 1 and r.incarnation = c.incarnation
union
select r.job, r.id, r.state, r.attempt, r.fence
  from json_each(?1) as asked
 cross join worker_claims c indexed by worker_claims_job on c.job = unhex(asked.value)
 cross join runs r on r.id = c.run and r.state = 1;
