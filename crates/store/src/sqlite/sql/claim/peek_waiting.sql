-- Lists up to ?3 waiting runs that are on time and due at ?1, in claim order. Index: waiting_claim.
-- Leaves out runs of the jobs ?2, unless they are forced or between two attempts, all runs of the jobs ?4, and runs of marked
-- backlogs.
select run, job, tenant, priority, due_at, late, force, attempts
  from waiting indexed by waiting_claim
 where queue is null and late = 0 and due_at <= ?1
   and (force = 1 or attempts > 0 or job not in (select unhex(value) from json_each(?2)))
   and job not in (select unhex(value) from json_each(?4))
   and ((select count(*) from backlog_work) = 0
        or not exists (select 1 from backlog_work b where b.job = waiting.job and waiting.lot <= b.up_to))
 order by priority desc, due_at, run
 limit ?3;
