-- Counts the running backfills (state 0) of job ?1. Index: backfills_active.
select count(*) from backfills b indexed by backfills_active where b.active = 1 and b.job = ?1 and b.state = 0;
