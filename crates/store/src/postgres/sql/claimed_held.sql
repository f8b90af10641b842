-- Holds the runs of job $1 that are being worked on, in order. Index: runs_history from $2, the lowest id that a lease has claimed.
select id from runs where job = $1 and id >= $2 and state = 1 order by id for update;
