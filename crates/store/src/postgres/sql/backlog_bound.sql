-- Ends the time in which the cancel (1) of job $1, which is locked, marks every lot: runs that begin to wait from now on get a
-- higher lot. Key: backlog_work.
update backlog_work set up_to = nextval('waiting_lots') where job = $1 and action = 1;
