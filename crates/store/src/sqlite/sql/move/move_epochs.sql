-- Reads up to ?1 rows of epochs after job ?2, for a move. Primary key: epochs.
select job, tenant, epoch, queue
  from epochs
 where job > ?2
 order by job
 limit ?1;
