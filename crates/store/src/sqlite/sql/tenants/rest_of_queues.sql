-- Removes up to ?2 rows of tenant ?1. Primary key: queues.
delete from queues
 where (tenant, name) in (select tenant, name from queues where tenant = ?1 order by tenant, name limit ?2);
