-- Up to ?1 rows behind the key ?2. Key: epochs.
select job, tenant, epoch, queue
  from epochs
 where job > ?2
 order by job
 limit ?1;
