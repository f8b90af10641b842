-- $3 runs of job $1 were worked off for action $2, at $4. Key: backlog_work.
update backlog_work set done = done + $3, worked_at = $4 where job = $1 and action = $2;
