-- Reads those of the runs ?1 that wait or are claimed (states 0, 1), with job, and whether they are claimed. Primary key: runs.
select id, job, state = 1 as claimed from runs
 where id in (select unhex(value) from json_each(?1)) and state in (0, 1);
