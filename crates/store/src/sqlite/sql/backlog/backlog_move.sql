-- Moves up to ?3 waiting runs of job ?1 up to lot ?2 to queue ?4 (null: push target) at time ?7. Index: waiting_job.
-- ?5 and ?6 lead of the job's priority in milliseconds, on time and late.
-- rank = the instant since which the run waits, minus the lead. A new lot takes the moved runs out of the mark.
update waiting
   set queue = ?4, lot = (select value from counters where name = 'lot'),
       rank = iif(?4 is null, null, iif(late = 1, ?7 - ?6, due_at - ?5))
 where run in (select run from waiting indexed by waiting_job where job = ?1 and lot <= ?2 limit ?3);
