-- The payloads of their own that the runs $1 have, by job. Key: runs.
select job, payload from runs where id = any($1);
