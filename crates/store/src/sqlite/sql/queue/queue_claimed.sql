-- Counts the runs of queue ?2 of tenant ?1 that workers have claimed. Index: worker_claims_queue.
select count(*) from worker_claims indexed by worker_claims_queue where tenant = ?1 and queue = ?2;
