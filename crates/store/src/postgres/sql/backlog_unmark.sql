-- Removes the mark of job $1 for action $2. Key: backlog_work.
delete from backlog_work where job = $1 and action = $2;
