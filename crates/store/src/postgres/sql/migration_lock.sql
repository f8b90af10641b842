-- Whoever else brings the schema up to date, or makes or drops days, waits until this transaction ends.
select pg_advisory_xact_lock($1);
