-- Reads the payloads that the runs $1 have of their own, by job. Primary key: runs.
select job, payload from runs where id = any($1);
