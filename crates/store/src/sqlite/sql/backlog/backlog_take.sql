-- Removes up to ?3 runs of job ?1 up to lot ?2 from waiting, and returns them. Index: waiting_job. Primary key: waiting.
delete from waiting
 where run in (select run from waiting indexed by waiting_job where job = ?1 and lot <= ?2 limit ?3)
returning run;
