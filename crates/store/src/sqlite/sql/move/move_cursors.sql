-- Reads up to ?1 rows of cursors after job ?2, for a move. Primary key: cursors.
select job, tenant, next_tick
  from cursors
 where job > ?2
 order by job
 limit ?1;
