-- Holds the jobs $1 against edits, in order; tells of which the other runs are to be looked at. Leaves out those that an edit waits
-- for: PostgreSQL lets one who shares a row past one who waits to have it alone, so that claims in a row would keep an edit
-- waiting for ever. Some jobs share a gate (see epoch_held.sql). Key: epochs.
select job, guarded, epoch from epochs
 where job = any($1) and pg_try_advisory_xact_lock_shared(8640, hashtext(job::text) & 63)
 order by job for key share;
