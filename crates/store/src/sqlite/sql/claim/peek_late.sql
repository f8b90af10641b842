-- Lists up to ?3 late runs of tenant ?4 that are due at ?1, in claim order. Index: waiting_late.
-- Leaves out runs of the jobs ?2, unless they are forced or between two attempts, and all runs of the jobs ?5.
select run, job, tenant, priority, due_at, late, force, attempts
  from waiting indexed by waiting_late
 where queue is null and late = 1 and tenant = ?4 and due_at <= ?1
   and (force = 1 or attempts > 0 or job not in (select unhex(value) from json_each(?2)))
   and job not in (select unhex(value) from json_each(?5))
 order by priority desc, due_at, run
 limit ?3;
