-- As epochs_shared.sql ($1 jobs), but skips jobs that another session has locked. Primary key: epochs.
-- For a transaction that has locked other jobs already: waiting out of order could deadlock.
select job, guarded, epoch from epochs
 where job = any($1) and pg_try_advisory_xact_lock_shared(8640, hashtext(job::text) & 63)
 order by job for key share skip locked;
