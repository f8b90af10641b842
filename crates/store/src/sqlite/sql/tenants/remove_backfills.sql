-- Removes the rows of job ?1. Index: backfills_job.
delete from backfills indexed by backfills_job where job = ?1;
