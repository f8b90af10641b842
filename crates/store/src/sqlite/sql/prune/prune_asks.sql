-- Deletes up to ?2 queues for which no worker has asked since ?1. Index: queue_asks_asked. Primary key: queue_asks.
delete from queue_asks
 where (tenant, queue) in (
        select tenant, queue from queue_asks indexed by queue_asks_asked where asked_at < ?1 order by asked_at limit ?2);
