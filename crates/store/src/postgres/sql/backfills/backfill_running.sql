-- Counts the running backfills (state 0) of job $1. Index: backfills_active.
select count(*) from backfills where active and job = $1 and state = 0;
