-- Moves claims of incarnation ?1 to the receivers that accepted the work and report later. Primary key: runs.
-- ?2 JSON array of [run, fence, worker, timeout_at, previous]. Only runs that this incarnation has claimed (state 1) under that
-- fence change. accept_claims.sql then writes their worker_claims rows. Returns the runs that changed.
update runs set incarnation = zeroblob(16), worker = s.value ->> 2
  from json_each(?2) as s
 where runs.id = unhex(s.value ->> 0) and runs.state = 1 and runs.fence = s.value ->> 1 and runs.incarnation = ?1
returning id;
