-- Lists up to $2 runs of job $1, oldest first. Index: runs_history.
select id from runs where job = $1 order by id limit $2;
