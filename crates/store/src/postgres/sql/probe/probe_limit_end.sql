-- Drops the table that probe_limit_begin.sql creates.
drop table if exists probe_runs;
