-- The work at the backlog of job $1: what is cancelled comes first. Key: backlog_work.
select action, tenant, up_to, done, actor from backlog_work where job = $1 order by action limit 1;
