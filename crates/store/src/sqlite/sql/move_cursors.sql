-- Up to ?1 rows behind the key ?2. Key: cursors.
select job, tenant, next_tick
  from cursors
 where job > ?2
 order by job
 limit ?1;
