-- As search_failed_end.sql (?1 tenant, ?2 lowest id, ?3 highest id, excluded, ?4 offset), among the failed runs of job ?5.
-- Index: failures_job, backwards.
select run from failures indexed by failures_job where tenant = ?1 and job = ?5 and run >= ?2 and run < ?3 order by run desc limit 1 offset ?4;
