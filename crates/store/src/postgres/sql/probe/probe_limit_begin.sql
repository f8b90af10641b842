-- Creates a table like a day's table of runs, with the same indexes and fillfactor.
drop table if exists probe_runs;
create table probe_runs (like runs including defaults including constraints including indexes including storage)
  with (fillfactor = 45, autovacuum_enabled = false);
