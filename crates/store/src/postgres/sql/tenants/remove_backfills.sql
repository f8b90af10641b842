-- Removes the rows of job $1. Index: backfills_job.
delete from backfills where job = $1;
