-- How many backfills of job $1 are under way. Index: backfills_active.
select count(*) from backfills where active and job = $1 and state = 0;
