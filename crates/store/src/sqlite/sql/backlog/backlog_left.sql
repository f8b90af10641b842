-- Counts the waiting runs of job ?1 up to lot ?2, at most ?3. Index: waiting_job.
select count(*) from (select 1 from waiting indexed by waiting_job where job = ?1 and lot <= ?2 limit ?3);
