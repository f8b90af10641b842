-- How many runs of queue $2 of tenant $1 workers hold. Index: worker_claims_queue.
select count(*) from worker_claims where tenant = $1 and queue = $2;
