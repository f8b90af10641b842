-- As epochs_shared.sql, but waits for nobody: who holds jobs already would wait out of order. Key: epochs.
select job, guarded, epoch from epochs
 where job = any($1) and pg_try_advisory_xact_lock_shared(8640, hashtext(job::text) & 63)
 order by job for key share skip locked;
