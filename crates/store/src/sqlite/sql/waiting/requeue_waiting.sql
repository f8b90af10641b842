-- Moves the waiting runs of job ?1 to queue ?2 (null: push target) at time ?5. Index: waiting_job.
-- ?3 and ?4 lead of the job's priority in milliseconds, on time and late.
-- rank = the instant since which the run waits, minus the lead.
update waiting
   set queue = ?2, rank = iif(?2 is null, null, iif(late = 1, ?5 - ?4, due_at - ?3))
 where job = ?1 and queue is not ?2;
