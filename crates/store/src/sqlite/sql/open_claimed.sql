-- The runs of the jobs in ?1 that nodes work on. Index: runs_history from the lowest id that a lease has claimed.
select r.job, r.id, r.state, r.attempt, r.fence
  from json_each(?1) as asked
 cross join runs r indexed by runs_history
    on r.job = unhex(asked.value) and r.id >= (select min(open_from) from leases) and r.state = 1;
