-- Hands the claims [run, fence, worker, timeout_at, previous] of ?2 of incarnation ?1 over to their receivers, where that incarnation
-- has them under that fence. Key: runs.
update runs set incarnation = zeroblob(16), worker = s.value ->> 2
  from json_each(?2) as s
 where runs.id = unhex(s.value ->> 0) and runs.state = 1 and runs.fence = s.value ->> 1 and runs.incarnation = ?1
returning id;
