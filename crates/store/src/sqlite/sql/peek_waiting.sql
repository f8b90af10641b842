-- Up to ?3 runs on time and due at ?1 in the order of claims, without those of the jobs in ?2 that are
-- neither forced nor in progress already, and without any of the jobs in ?4. Index: waiting_claim.
select run, job, tenant, priority, due_at, late, force, attempts
  from waiting indexed by waiting_claim
 where queue is null and late = 0 and due_at <= ?1
   and (force = 1 or attempts > 0 or job not in (select unhex(value) from json_each(?2)))
   and job not in (select unhex(value) from json_each(?4))
 order by priority desc, due_at, run
 limit ?3;
