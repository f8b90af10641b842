-- Whether more than ?2 runs of job ?1 wait, or its backlog is being processed already. Index: waiting_job.
-- Primary key: backlog_work.
select (select count(*) from (select 1 from waiting indexed by waiting_job where job = ?1 limit ?2 + 1)) > ?2
       or exists (select 1 from backlog_work where job = ?1);
