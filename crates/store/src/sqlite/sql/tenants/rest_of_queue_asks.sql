-- Removes up to ?2 rows of tenant ?1. Primary key: queue_asks.
delete from queue_asks
 where (tenant, queue) in (select tenant, queue from queue_asks where tenant = ?1 order by tenant, queue limit ?2);
