-- The payloads of their own that the runs of ?1 have, by job. Key: runs.
select job, payload from runs where id in (select unhex(value) from json_each(?1));
