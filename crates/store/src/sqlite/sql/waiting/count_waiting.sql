-- Counts the waiting runs of job ?1, at most ?2. Index: waiting_job.
select count(*) from (select 1 from waiting indexed by waiting_job where job = ?1 limit ?2);
