-- Reads up to ?1 rows of failures after (?2 tenant, ?3 run), for a move. Primary key: failures.
select tenant, run, job, error_hash
  from failures
 where (tenant, run) > (?2, ?3)
 order by tenant, run
 limit ?1;
