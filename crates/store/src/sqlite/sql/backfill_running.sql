-- How many backfills of job ?1 are under way. Index: backfills_active.
select count(*) from backfills b indexed by backfills_active where b.active = 1 and b.job = ?1 and b.state = 0;
