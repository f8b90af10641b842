-- Up to ?1 rows behind the key (?2, ?3). Key: failures.
select tenant, run, job, error_hash
  from failures
 where (tenant, run) > (?2, ?3)
 order by tenant, run
 limit ?1;
