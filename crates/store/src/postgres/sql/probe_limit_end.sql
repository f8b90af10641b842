-- What `probe_limit_begin` made.
drop table if exists probe_runs;
