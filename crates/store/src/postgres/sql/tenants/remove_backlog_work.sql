-- Removes the rows of job $1. Primary key: backlog_work.
delete from backlog_work where job = $1;
