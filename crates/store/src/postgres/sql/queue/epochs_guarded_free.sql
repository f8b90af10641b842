-- As epochs_guarded.sql ($1 jobs), but skips jobs that another session has locked. Primary key: epochs.
-- For a transaction that has locked other jobs already: waiting out of order could deadlock.
select job from epochs where job = any($1) order by job for no key update skip locked;
