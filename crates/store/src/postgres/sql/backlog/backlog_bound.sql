-- Sets the bound of the cancel (action 1) of job $1: runs that begin to wait from now on get a higher lot and are not marked.
-- Primary key: backlog_work. The caller has locked the job. Until now the cancel marked every lot.
update backlog_work set up_to = nextval('waiting_lots') where job = $1 and action = 1;
