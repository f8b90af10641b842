-- Reads the mark of job ?1; a cancel (action 1) comes before a move (action 2). Primary key: backlog_work.
select action, tenant, up_to, done, actor from backlog_work where job = ?1 order by action limit 1;
