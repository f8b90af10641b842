-- Whether a tick (cause 1) of job $1 has a row with an id from $2 to before $3. Index: runs_history.
select 1 from runs where job = $1 and id >= $2 and id < $3 and cause = 1 limit 1;
