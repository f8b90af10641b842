-- Creates a day's table and attaches it to runs. Attaching does not block inserts.
-- A lock that is not free within the lock timeout fails the statement; the caller retries later.
set local lock_timeout = 'lock_timeout_ms';
create table runs_of_the_day (like runs including defaults including constraints including indexes including storage)
  with (fillfactor = 45, autovacuum_vacuum_scale_factor = 0.1, autovacuum_analyze_scale_factor = 0.05,
        autovacuum_vacuum_insert_scale_factor = 0.2, autovacuum_vacuum_cost_delay = 0,
        toast.autovacuum_vacuum_scale_factor = 0.1);
alter table runs attach partition runs_of_the_day for values from ('low') to ('high');
