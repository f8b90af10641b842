-- Removes the mark of job ?1 for action ?2. Primary key: backlog_work.
delete from backlog_work where job = ?1 and action = ?2;
