-- A table like a day's of runs, with its indexes and the room that it leaves.
drop table if exists probe_runs;
create table probe_runs (like runs including defaults including constraints including indexes including storage)
  with (fillfactor = 45, autovacuum_enabled = false);
